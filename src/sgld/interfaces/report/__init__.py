"""The report of a run: one page that works offline."""
