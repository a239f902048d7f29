"""Data on disk: readers of files and tables, and the cache in which their rows lie shuffled."""
