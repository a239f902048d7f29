"""tests/budgets.py counts what it says, and fails where an entry of its table is exceeded."""

import ast

import pytest

import budgets

MODULE = '''"""Two lines of
a docstring."""

LIMIT = 3  # a comment


def f(x):
    """Return a Verdict."""
    # a comment
    return Verdict(
        """a text
        of two lines"""
    )
'''
SOURCES = {"one.py": MODULE, "a/one.py": "LIMIT = 3\n", "b/one.py": "LIMIT, other = 3, 4\n"}


@pytest.fixture
def source(tmp_path):
    for name, text in SOURCES.items():
        path = tmp_path / "src" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "src"


def test_lines_hold_more_than_comments_and_docstrings():
    assert budgets.code_lines(MODULE, ast.parse(MODULE)) == 6


def test_what_is_measured(source):
    assert budgets.measure(source) == {
        "lines of a": 1, "lines of b": 1, "lines of root": 6, "files": 3,
        "shared constant names": 1, "files that build a Verdict": 1,
    }  # fmt: skip


def test_an_exceeded_entry_fails_with_its_remedy(source, tmp_path, capsys):
    table = tmp_path / "budgets.toml"
    entries = budgets.measure(source)
    table.write_text("".join(f'"{entry}" = {value}\n' for entry, value in entries.items()))
    assert budgets.main(source, table) == 0 and capsys.readouterr().err == ""
    table.write_text(table.read_text().replace('"lines of root" = 6', '"lines of root" = 5'))
    assert budgets.main(source, table) == 1
    said = capsys.readouterr()
    assert said.err == f"lines of root: 6 is above the limit 5; {budgets.REMEDY}.\n"
    assert "lines of root" in said.out
