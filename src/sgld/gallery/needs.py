"""What an entry needs besides the package: its `NEEDS` name modules of optional extras."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable

__all__ = ["lacking"]

EXTRAS = {  # module -> what it is called, and the extra that installs it
    "numpyro": ("NumPyro", "numpyro"),
    "sklearn": ("scikit-learn", "sklearn"),
    "torch": ("PyTorch", "torch"),
}


def lacking(modules: Iterable[str]) -> str | None:
    """What of `modules` is not installed, and the command that installs it; None: nothing.

    Example:
      >>> from sgld.gallery.needs import lacking
      >>> lacking(()) is None
      True
    """
    missing = [EXTRAS[name] for name in modules if importlib.util.find_spec(name) is None]
    if not missing:
        return None
    names, extras = zip(*missing, strict=True)
    return f"needs {' and '.join(names)}: pip install 'sgld[{','.join(extras)}]'"
