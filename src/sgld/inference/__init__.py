"""The run of a sampler: compiled chunk, loop around it, checkpoints, verdict and tuning."""
