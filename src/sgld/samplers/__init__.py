"""Samplers: `init(position)` and `step(state, grad, step_size, noise)`, nothing else.

A step is a deterministic function of its arguments: it draws, schedules and saves
nothing. The contract in full is `sgld.testing`'s, whose `check_sampler` certifies it.
"""
