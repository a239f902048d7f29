"""Estimators of the gradient of the full-data log posterior.

The contract: `prepare(target, source, center)` on the host, once, returns the estimator
with its numbers filled in; `at(target, source, x)` inside compiled code returns the
estimate as a function of position, with entry x of the data order bound. Swapping one
for another changes no sampler.
"""
