"""What a planted bug is."""

from __future__ import annotations

from typing import NamedTuple


class Mutant(NamedTuple):
    """One bug: where in src/sgld, the exact text, what takes its place, and the tests that must notice."""

    name: str
    file: str
    old: str
    new: str
    tests: str

    @property
    def needs_torch(self) -> bool:
        """Whether its tests run where PyTorch is installed, and nowhere else."""
        return self.tests.startswith("tests/unit/torch_door/")
