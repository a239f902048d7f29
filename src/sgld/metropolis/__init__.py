"""Metropolis-adjusted chains, and what rejections say of a step size."""
