"""Draws: weighted summaries, storage on disk, export."""
