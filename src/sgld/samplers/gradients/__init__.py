"""Estimators of the gradient of the full-data log posterior.

Every estimator has these methods, and all but `prepare` run inside compiled code, per chain:

    prepare(problem, center) -> estimator   on the host, once: fills in the numbers
    at(problem, x, memory) -> Estimate      binds entry x of the data order
    remembers = True, for those that adapt along the run, and then
    start(problem, z) -> memory             at the chain's start
    after(problem, x, memory, z, step) -> memory    after a step that began at z

A sampler works with any of them unchanged.
"""
