"""Interfaces for users: scikit-learn, ArviZ, reports, notebooks and the command line."""
