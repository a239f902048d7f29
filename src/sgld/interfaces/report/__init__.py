"""Report of a run: one HTML page that works offline."""
