"""The run: the one compiled chunk, the loop around it, checkpoints and progress."""
