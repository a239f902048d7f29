"""What is published: the wheel and the source distribution, their contents, and a clean install."""

import email
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

import sgld

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "sgld"


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The folder with both distributions, built from this tree."""
    out = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", out], cwd=ROOT, check=True,
        capture_output=True,
    )  # fmt: skip
    return out


@pytest.fixture(scope="module")
def wheel(built):
    (path,) = built.glob("*.whl")
    return path


def test_the_wheel_holds_the_package_and_nothing_else(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    info = f"sgld-{sgld.__version__}.dist-info"
    files = (path for path in PACKAGE.rglob("*") if path.is_file())
    package = {
        str(path.relative_to(PACKAGE.parent)) for path in files if "__pycache__" not in path.parts
    }
    own = {"METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE"}
    assert names == package | {f"{info}/{name}" for name in own}
    needed = {"sgld/py.typed", "sgld/data/bundled/randhie.csv", "sgld/gallery/x5_nuts.json"}
    assert needed <= names
    assert not any(path.suffix not in (".py", ".csv", ".json", ".md", ".typed")
                   for path in map(Path, package))  # fmt: skip


def test_the_metadata_is_that_of_the_project(wheel):
    text = zipfile.ZipFile(wheel).read(f"sgld-{sgld.__version__}.dist-info/METADATA").decode()
    said = email.message_from_string(text)
    assert said["Version"] == sgld.__version__ and said["License-Expression"] == "Apache-2.0"
    assert said["Author"] == "The sgld developers" and said["Requires-Python"] == ">=3.11"
    assert "Typing :: Typed" in said.get_all("Classifier") and "SGLD" in said["Keywords"]
    assert said.get_all("Project-URL") is None  # there is no home yet


def test_the_long_description_stands_by_itself(wheel):
    """A package index shows it without the files that README.md links to."""
    text = zipfile.ZipFile(wheel).read(f"sgld-{sgld.__version__}.dist-info/METADATA").decode()
    body = email.message_from_string(text).get_payload()
    targets = re.findall(r"\]\(([^)]*)\)", body) + re.findall(r"(?:src|href)=[\"']([^\"']*)", body)
    assert [target for target in targets if not target.startswith("https://")] == []
    assert "<!--" not in body and "(`docs/verdict.md`)" in body
    words = (ROOT / "README.md").read_text().split("\n\n")[1]
    assert body.startswith("# sgld") and words in body


def test_the_version_stands_in_one_place():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert "version" not in project and project["dynamic"] == ["version", "readme"]
    cited = (ROOT / "CITATION.cff").read_text()
    assert f"\nversion: {sgld.__version__}\n" in cited
    assert f"## {sgld.__version__}" in (ROOT / "CHANGELOG.md").read_text()


def test_the_source_distribution_can_be_built_and_tested_from(built):
    (path,) = built.glob("*.tar.gz")
    with tarfile.open(path) as file:
        names = {name.split("/", 1)[1] for name in file.getnames()}
    needed = {
        "pyproject.toml", "README.md", "LICENSE", "SECURITY.md", "CITATION.cff", "Makefile",
        "constraints.txt", "constraints-3.12.txt", "src/sgld/py.typed", "src/sgld/data/bundled/randhie.csv",
        "tests/conftest.py", "tests/mutants.py", "benchmarks/speed.py", "docs/verdict.md",
    }  # fmt: skip
    assert needed <= names
    tops = {name.split("/")[0] for name in names}
    assert tops <= {name.split("/")[0] for name in needed} | {
        "CHANGELOG.md", "CONTRIBUTING.md", "PKG-INFO", ".gitignore", "hatch_build.py",
    }  # fmt: skip


def run(program, *arguments, cwd):
    """A program of the clean environment, from another folder, with nothing of this one's in sight."""
    hidden = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    clean = {name: value for name, value in os.environ.items() if name not in hidden}
    return subprocess.run(
        [program, *arguments], cwd=cwd, env=clean, capture_output=True, text=True, check=False
    )


@pytest.mark.slow
def test_the_wheel_works_in_a_clean_environment(wheel, tmp_path):
    home, elsewhere = tmp_path / "venv", tmp_path / "elsewhere"
    elsewhere.mkdir()
    venv.create(home, with_pip=True)
    python, script = home / "bin" / "python", home / "bin" / "sgld"
    install = (
        "-m",
        "pip",
        "install",
        "-q",
        "--disable-pip-version-check",
        "-c",
        ROOT / ("constraints.txt" if sys.version_info < (3, 12) else "constraints-3.12.txt"),
    )

    # the core alone: a density from Python; the shell says what it misses
    done = run(python, *install, wheel, cwd=elsewhere)
    assert done.returncode == 0, done.stderr
    code = (
        "import sgld; print(sgld.__file__);"
        "draws = sgld.sample(sgld.Posterior(lambda t: -0.5 * t**2), None, 0.0, progress=False);"
        "print(sgld.__version__, draws.verdict.word)"
    )
    said = run(python, "-c", code, cwd=elsewhere)
    place, result = said.stdout.splitlines()
    assert Path(place).is_relative_to(home) and result == f"{sgld.__version__} trusted", said.stderr
    missing = run(script, "demo", cwd=elsewhere)
    assert missing.returncode == 2 and "sgld[cli]" in missing.stderr
    assert "Traceback" not in missing.stderr

    # with the extra of the shell: the demo, end to end
    done = run(python, *install, f"{wheel}[cli]", cwd=elsewhere)
    assert done.returncode == 0, done.stderr
    demo = run(script, "demo", "--out", "run", cwd=elsewhere)
    assert demo.returncode == 0, demo.stderr
    assert "verdict: trusted" in demo.stdout
    assert (elsewhere / "run" / "report.html").stat().st_size > 10_000
    checked = run(python, "-m", "pip", "check", cwd=elsewhere)
    assert checked.returncode == 0, checked.stdout
