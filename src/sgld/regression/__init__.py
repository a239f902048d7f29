"""Ready-made models: regressions by formula."""
