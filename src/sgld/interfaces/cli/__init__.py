"""Command line: it parses arguments, prints results and sets the exit status.

Exit status 0: done. 2: wrong use or data (one sentence on standard error). 3: the verdict is not
`trusted` (with --strict), or a check of the gallery failed. 130: interrupted. Only typer is
imported here, so that help is quick.
"""

# importing a module registers its commands, in this order
from . import fit, runs, plan, watch  # isort: skip
from .app import app, main

__all__ = ["app", "fit", "main", "plan", "runs", "watch"]
