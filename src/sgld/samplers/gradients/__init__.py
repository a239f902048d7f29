"""Estimators of the gradient of the full-data log posterior.

The contract, all of whose parts but `prepare` run inside compiled code, per chain:

    prepare(problem, center) -> estimator   on the host, once: numbers filled in
    at(problem, x, memory) -> Estimate      entry x of the data order bound
    remembers = True, for those that learn along the run, and then
    start(problem, z) -> memory             at the chain's start
    after(problem, x, memory, z, step) -> memory    after a step that began at z

Swapping one for another changes no sampler.
"""
