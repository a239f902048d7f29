"""The public contract suites: samplers, sources, gradients, preconditioners, schedules."""
