"""From a model and a tolerance to a plan: mode, curvature, noise and step size."""
