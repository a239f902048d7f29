"""What users meet: scikit-learn, ArviZ, reports, notebooks and the command line."""
