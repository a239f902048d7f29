"""Provide draws, their weighted summaries, and their storage on disk."""
