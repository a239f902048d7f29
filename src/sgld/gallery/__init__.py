"""The gallery: the experiments X1 to X11 of the documents behind this package, each one file.

An entry is data, a model, a run on the public surface, pictures and checks against a known truth,
so that it is an example too. `sgld.gallery.make` runs entries and writes pages.
"""

from .make import EXPERIMENTS, Result, make
from .page import Check, Entry, Section

__all__ = ["EXPERIMENTS", "Check", "Entry", "Result", "Section", "make"]
