"""What a run of a network is judged by: predictions at some rows, and kinetic temperatures."""
