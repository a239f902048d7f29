"""Bugs that a tired engineer would make, by room; `tests/mutants.py` plants them one at a time."""

from .arviz_door import ARVIZ_DOOR
from .beyond import BEYOND_BUGS
from .bridge import BRIDGE
from .diagnose import DIAGNOSE
from .disk import DISK
from .draws import DRAWS
from .front import FRONT
from .hidden import HIDDEN
from .manners import MANNERS
from .mutant import Mutant
from .networks import NETWORKS
from .newcomers import NEWCOMERS
from .referee import REFEREE
from .sampling import SAMPLING
from .scale import SCALE
from .sklearn_door import SKLEARN_DOOR
from .tables import TABLES
from .torch_door import TORCH_DOOR
from .tune import TUNE
from .visits import VISITS_BUGS

MUTANTS: list[Mutant] = [
    *SAMPLING, *DIAGNOSE, *BEYOND_BUGS, *VISITS_BUGS, *TUNE, *DISK, *DRAWS, *REFEREE, *FRONT, *BRIDGE, *MANNERS,
    *SKLEARN_DOOR, *TABLES, *TORCH_DOOR, *ARVIZ_DOOR, *NETWORKS, *NEWCOMERS, *SCALE, *HIDDEN,
]  # fmt: skip
