"""Sources of rows, their order, tables and their cache on disk."""
