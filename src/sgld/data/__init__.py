"""Rows and their order: tables, sources, shuffling."""
