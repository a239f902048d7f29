"""What ArviZ is given of a run, and what it finds: groups, leave-one-out, comparisons of models."""
