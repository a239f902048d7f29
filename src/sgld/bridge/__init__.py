"""Models written for other libraries, read as a Posterior."""
