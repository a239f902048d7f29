"""The question a run answers: a density over flat free vectors, its rows, and where to start."""
