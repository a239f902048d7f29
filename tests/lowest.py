"""The lowest versions that pyproject.toml allows of what sgld depends on directly, as pip constraints.

    python tests/lowest.py > constraints        one `name==version` a line

`make test-lowest` installs exactly these, on the oldest Python, and runs the tests that use them:
a lower bound that nobody tried is a guess.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

PYPROJECT = Path(__file__).parents[1] / "pyproject.toml"
REQUIREMENT = re.compile(
    r"(?P<name>[\w.-]+)(\[[\w,-]+\])?>=(?P<lowest>[\d.]+)(,<[\d.]+)?(; python_version .*)?"
)


def lowest(pyproject: dict) -> dict[str, str]:
    """{name: lowest version}. Raises ValueError for a requirement without a lower bound."""
    project = pyproject["project"]
    found: dict[str, str] = {}
    for requirement in sum(project["optional-dependencies"].values(), project["dependencies"]):
        if requirement.startswith("sgld["):
            continue
        parts = REQUIREMENT.fullmatch(requirement)
        if parts is None:
            raise ValueError(f"{requirement!r} has no lower bound of the form name>=version.")
        found[parts["name"]] = parts["lowest"]
    return found


if __name__ == "__main__":
    for name, version in lowest(tomllib.loads(PYPROJECT.read_text())).items():
        print(f"{name}=={version}")
