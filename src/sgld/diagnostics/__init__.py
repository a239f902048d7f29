"""Diagnostics of a run: the measured bias, mixing, and the rule for the verdict."""
