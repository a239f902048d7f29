"""Public contract suites for samplers, sources, gradients, preconditioners and schedules."""
