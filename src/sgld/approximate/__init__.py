"""The mode, the Gaussian around it, and the sandwich."""
