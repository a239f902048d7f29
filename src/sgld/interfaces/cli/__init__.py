"""The command line: it asks, prints and exits; the work is done elsewhere.

Exit status 0 done, 2 wrong use or data (one sentence on standard error), 3 with --strict when
the verdict is not `trusted` or a check of the gallery missed, 130 interrupted. Only typer is
imported here, so that help is quick.
"""

# they add their commands, in this order
from . import fit, runs, plan, watch, gallery  # isort: skip
from .app import app, main

__all__ = ["app", "fit", "gallery", "main", "plan", "runs", "watch"]
