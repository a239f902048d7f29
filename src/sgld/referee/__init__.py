"""The referee: exact samplers, and Metropolis's view of a step size, on the same Posterior."""
