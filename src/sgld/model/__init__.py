"""Posterior models: a density over flat free vectors, its rows, and a start."""
