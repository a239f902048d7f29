"""Samplers: `init(position)` and `step(state, grad, step_size, noise)`, nothing else.

A step is a deterministic function of its arguments: it draws, schedules and saves
nothing. `grad` is a function of position; `noise` holds `num_noises` standard normals
per coordinate ([d], or [num_noises, d] where there are several).
"""
