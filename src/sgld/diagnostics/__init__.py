"""What a run says about itself: the bias meter and the verdict."""
