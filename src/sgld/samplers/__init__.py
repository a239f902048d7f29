"""Samplers: each offers `init(position)` and `step(state, grad, step_size, noise)`, nothing else.

A step is a deterministic function of its arguments: it draws, schedules and saves nothing.
`sgld.testing.check_sampler` documents the full contract and certifies a sampler against it.
"""
