"""What a planted bug is."""

from __future__ import annotations

from typing import NamedTuple


class Mutant(NamedTuple):
    """A bug: a text that stands once in all of src/sgld, its replacement, and the tests that must notice."""

    name: str
    old: str
    new: str
    tests: str

    @property
    def needs_torch(self) -> bool:
        """Whether its tests run where PyTorch is installed, and nowhere else."""
        return self.tests.startswith("tests/unit/torch_door/")
