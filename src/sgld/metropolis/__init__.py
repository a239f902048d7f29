"""Metropolis-adjusted chains that learn from one another, and what rejections say of a step size."""
