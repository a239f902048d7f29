"""Closed-form stationary laws of samplers on Gaussians."""
