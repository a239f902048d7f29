"""README.md and every page of docs run as they stand, print what they show, and link to what exists.

Blocks of a page run in order, in one namespace and one temporary folder: ```python blocks, and the lines of
```console blocks that begin with `$ `. A ```text block directly below a ```python block, and the lines below
a command, are compared with what was printed: words exactly, numbers of tables up to Monte Carlo error.
A line `...` stands for lines that are left out. The first lines of a page may say how it runs:
`% needs: torch` (a library that may be missing) and `% slow` (over 15 s).
"""

import contextlib
import functools
import importlib
import importlib.util
import inspect
import io
import itertools
import re
import shlex
import textwrap
from pathlib import Path

import jax
import pytest
from typer.testing import CliRunner

import sgld
from sgld.interfaces.cli import app

ROOT = Path(__file__).parents[2]
FILES = (
    ROOT / "README.md",
    *(p for p in sorted(ROOT.glob("docs/**/*.md")) if "_build" not in p.parts),
)
PAGES = {str(page.relative_to(ROOT)): page.read_text() for page in FILES}
BLOCK = re.compile(r"^( *)```(\S*)[^\n]*\n(.*?)^\1```[ ]*$", re.MULTILINE | re.DOTALL)
DRAWN = "images/drawn"  # pictures that a page draws; not kept by git
MAX_MEAN_ERROR, MAX_SD_ERROR = 0.15, 0.07  # between two runs: in sds, and a share of the sd
LEFT_OUT = "..."
NUMBER = r"(?<![\w.])[-+]?(?:\d[\d,]*(?:\.\d*)?|\.\d+)(?:e[-+]?\d+)?(?!\w)"


# -- the blocks of a page --------------------------------------------------------------------


def blocks(text):
    """Return [(language, content, whether it directly follows the block above)]."""
    found, end = [], 0
    for block in BLOCK.finditer(text):
        content = textwrap.dedent(block[3])
        found.append((block[2], content, not text[end : block.start()].strip()))
        end = block.end()
    return found


def steps(text):
    """Yield what a page runs, in its order: ("python" or "console", what is run, shown output or None)."""
    found = [*blocks(text), ("", "", False)]
    for (language, content, _), after in itertools.pairwise(found):
        if language == "python":
            yield "python", content, after[1] if after[0] == "text" and after[2] else None
        elif language == "console":
            content = content.replace("\\\n", "")
            for command in re.split(r"^\$ ", content, flags=re.MULTILINE)[1:]:
                line, _, shown = command.partition("\n")
                yield "console", line, shown if shown.strip() else None


def directives(text):
    """Return the lines at the top of a page that say how it runs."""
    lines = text.splitlines()
    return [line[1:].strip() for line in lines[:3] if line.startswith("% ")]


def needed(text):
    """Return the libraries that a page needs beyond those of the tests."""
    lists = [line.removeprefix("needs:") for line in directives(text) if line.startswith("needs:")]
    return [name.strip() for line in lists for name in line.split(",")]


def marked(name):
    text, marks = PAGES[name], []
    if "torch" in needed(text):
        marks.append(pytest.mark.torch)
    # most of a page is compiling
    marks.append(pytest.mark.slow if "slow" in directives(text) else pytest.mark.long)
    return pytest.param(name, marks=marks)


# -- what is printed -------------------------------------------------------------------------


def words(text):
    """Return the words, single spaces between them, a # for each number and for each quoted name."""
    text = re.sub(r"[─-╿|]+|(?:^|(?<=\s))-{3,}(?=\s|$)", " ", text)  # frames
    text = re.sub(r"(?<!\w)'[^'\s]+'", "#", text)
    return " ".join(re.sub(NUMBER, "#", text).split())


def tables(text):
    """Return the rows of tables with the columns `mean` and `sd`, {name: (mean, sd)}, and all other lines.

    Which columns a table has can depend on the digits of its numbers. Tables whose names have a heading
    (layers of a network) are among the other lines.
    """
    found, columns, others = {}, [], []
    for line in text.splitlines():
        cells = line.split()
        if {"mean", "sd"} <= set(cells) and line.startswith(" "):
            columns = cells
        elif columns and len(cells) > len(columns) and re.fullmatch(rf"{NUMBER}|nan|-", cells[-1]):
            first = [cells[columns.index(key) - len(columns)] for key in ("mean", "sd")]
            found[" ".join(cells[: -len(columns)])] = tuple(map(float, first))
        elif cells != ["corrected"]:
            columns = columns if cells == [LEFT_OUT] else []
            others.append(line)
    return found, "\n".join(others)


def differing(shown, printed):
    """Return what a page shows and was not printed, or None."""
    (shown_rows, shown), (rows, rest) = tables(shown), tables(printed)
    rest, parts = words(rest), re.split(r"^ *\.\.\. *$|\.\.\.(?=\n|\Z)", shown, flags=re.MULTILINE)
    for part in filter(None, map(words, parts)):
        _, found, rest_after = rest.partition(part)
        if not found:
            return f"the page shows\n  {part}\nand it prints\n  {rest}"
        rest = rest_after
    for name, (mean, sd) in shown_rows.items():
        if name not in rows:
            return f"no row {name!r} is printed"
        now, scale = rows[name]
        if abs(now - mean) > MAX_MEAN_ERROR * scale or abs(scale - sd) > MAX_SD_ERROR * sd:
            return f"{name}: the page shows {mean} ({sd}), and it prints {now} ({scale})"
    return None


# -- running a page --------------------------------------------------------------------------


def call(line):
    """Run a command of a page; return what it prints."""
    program, *arguments = shlex.split(line)
    assert program in ("sgld", ".venv/bin/sgld"), f"a page runs sgld alone, not {line}"
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, f"{line}\n{done.output}"
    return done.stdout


def run(name):
    """Run a page in the current folder, with JAX's defaults as its reader has them."""
    names = {"__name__": "page"}
    for number, (kind, code, shown) in enumerate(steps(PAGES[name]), 1):
        if kind == "console":
            printed = call(code)
        else:
            lax = jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow")
            with lax[0], lax[1], contextlib.redirect_stdout(io.StringIO()) as out:
                exec(compile(code, f"{name}, block {number}", "exec"), names)
            printed = out.getvalue()
        if shown is not None:
            problem = differing(shown, printed)
            assert problem is None, f"{name}, below\n{code}\n{problem}"


@pytest.mark.parametrize(
    "name", [marked(name) for name in PAGES if next(steps(PAGES[name]), None) is not None]
)
def test_a_page_runs_and_prints_what_it_shows(name, tmp_path, monkeypatch):
    for library in needed(PAGES[name]):
        pytest.importorskip(library)
    folder = (tmp_path / name).parent
    (tmp_path / "docs" / DRAWN).mkdir(parents=True)
    folder.mkdir(parents=True, exist_ok=True)
    (tmp_path / "src").symlink_to(ROOT / "src")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("SGLD_DATA_CACHE", str(tmp_path / "cache"))
    run(name)
    for picture in drawn(name):
        assert (folder / picture).stat().st_size > 5000, picture


def test_differences_are_found():
    shown = "         mean     sd\nb[0]    1.00   0.10\n...\nverdict: trusted\n  sd within 3%.\n"
    assert differing(shown, shown.replace("1.00", "1.01").replace("3%", "4%")) is None
    assert differing(shown, shown.replace("...", "c  3.0  0.2")) is None
    assert "b[0]" in differing(shown, shown.replace("1.00", "1.03"))
    assert "b[0]" in differing(shown, shown.replace("0.10", "0.12"))
    assert "trusted" in differing(shown, shown.replace("trusted", "unknown"))


# -- what a page is made of ------------------------------------------------------------------


LANGUAGES = {"python", "console", "text", "sh", "toml", "json", "ini", "bibtex", "mermaid"}


@pytest.mark.parametrize("name", PAGES)
def test_the_blocks_of_a_page_are_fenced_and_of_a_known_kind(name):
    text = PAGES[name]
    kinds = {language for language, _, _ in blocks(text)}
    assert all(content.strip() for _, content, _ in blocks(text)), "an empty block"
    assert {kind for kind in kinds if not kind.startswith("{")} <= LANGUAGES
    prose = re.sub(r"^\s*(?:[-*]|\d+\.) .*\n(?:\n? +.*\n)*", "\n", BLOCK.sub("", text), flags=re.M)
    assert re.findall(r"(?:^\s*\n)((?: {4}.*\n)+)", prose, re.MULTILINE) == []


def prose_of(text):
    """The text without blocks and inline code."""
    return re.sub(r"`[^`\n]*`", "code", BLOCK.sub("", text))


def targets(text):
    """Return the targets of links and pictures within the repository."""
    found = re.findall(r"\]\(<?([^)>\s]+)>?(?: \"[^\"]*\")?\)", prose_of(text))
    return [target for target in found if not re.match(r"https?:|mailto:", target)]


def drawn(name):
    """Return the pictures of a page that its own code draws."""
    return [target for target in targets(PAGES[name]) if DRAWN in target]


def anchors(text):
    """Return the anchors of a page's headings and its named targets."""
    headings = re.findall(r"^#{1,4} +(.*?) *$", BLOCK.sub("", text), re.MULTILINE)
    plain = [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings]
    return {*plain, *re.findall(r"^\(([\w-]+)\)=$", text, re.MULTILINE)}


@pytest.mark.parametrize("name", PAGES)
def test_links_lead_somewhere(name):
    missing = []
    for target in targets(PAGES[name]):
        path, _, anchor = target.partition("#")
        file = (ROOT / name).parent / path if path else ROOT / name
        if DRAWN in target:
            there = f'savefig("{target}"' in PAGES[name]
        elif anchor.startswith("sgld."):
            there = file.name == "api.md" and resolves(anchor)
        else:
            there = file.exists() and (not anchor or anchor in anchors(file.read_text()))
        if not there:
            missing.append(target)
    assert missing == []


def resolves(dotted):
    """Return whether `sgld.a.b` is a module or an attribute; sgld.torch is left to `make test-torch`."""
    if dotted.startswith("sgld.torch"):
        return True
    thing = sgld
    for depth, part in enumerate(dotted.split(".")[1:], 2):
        thing = getattr(thing, part, None)
        if thing is None:
            try:
                thing = importlib.import_module(".".join(dotted.split(".")[:depth]))
            except ImportError:
                return False
    return True


@pytest.mark.parametrize("name", PAGES)
def test_what_a_page_names_is_there(name):
    text = PAGES[name]
    dotted = set(re.findall(r"(?<![\w/.-])sgld(?:\.[A-Za-z]\w*)+", text))
    assert [d for d in sorted(dotted) if not resolves(d)] == []
    commands = {command.name or command.callback.__name__ for command in app.registered_commands}
    assert set(re.findall(r"[`$] ?sgld ([a-z]+)", text)) <= commands
    programs = re.findall(r"(?:python |`)((?:benchmarks|tests|src)/[\w/.-]+\w)", text)
    programs += re.findall(r"(?<=[ ,|])(tests/[\w/]+(?:\.py)?)", text)
    missing = {p for p in programs if not (ROOT / p).exists()} - {"src/sgld/samplers/NAME.py"}
    assert missing == set()


def public_names():
    """Every public function and class by its dotted name."""
    for name in dir(sgld):
        if name in ("__version__", "typing", "torch"):
            continue
        thing = getattr(sgld, name)
        inner = getattr(thing, "__all__", None) if inspect.ismodule(thing) else None
        for dotted in [name] if inner is None else [f"{name}.{n}" for n in inner]:
            if inspect.isroutine(found := resolve(f"sgld.{dotted}")) or inspect.isclass(found):
                yield dotted


def resolve(dotted):
    return functools.reduce(getattr, dotted.split(".")[1:], sgld)


def test_the_reference_has_every_public_name():
    directives = re.findall(r"^\.\. auto\w+:: sgld\.([\w.]+)", PAGES["docs/api.md"], re.MULTILINE)
    assert len(directives) == len(set(directives))
    listed = {*directives}
    things = {
        id(resolve(f"sgld.{name}"))
        for name in directives
        if not name.startswith(("torch", "draws"))
    }
    assert {name for name in public_names() if id(resolve(f"sgld.{name}")) not in things} == set()
    door = (ROOT / "src" / "sgld" / "torch" / "__init__.py").read_text()
    names = re.findall(r'"(\w+)"', door.split("__all__")[1])
    assert {f"torch.{name}" for name in names} <= listed


def listed_pages():
    """Return the pages that tables of contents reach from the first page."""
    found, todo = set(), ["docs/index.md"]
    while todo:
        page = todo.pop()
        found.add(page)
        for tree in re.findall(r"```{toctree}\n(.*?)```", PAGES[page], re.DOTALL):
            for line in tree.splitlines():
                if not line.strip() or line.startswith(":"):
                    continue
                entry = re.sub(r".*<(.*)>", r"\1", line.strip())
                paths = ((ROOT / page).parent).glob(f"{entry}.md")
                names = [str(path.resolve().relative_to(ROOT)) for path in paths]
                assert names, f"{page}: no page {entry}"
                todo += [name for name in names if name not in found]
    return found


def test_every_page_of_the_site_is_reached_from_the_first():
    assert listed_pages() == PAGES.keys() - {"README.md"}


@pytest.mark.parametrize("name", PAGES)
def test_no_table_says_a_thing_twice(name):
    """Two people's rows of one table, both kept by a merge."""
    for table in re.findall(r"(?:^\|.*\n)+", PAGES[name], re.MULTILINE):
        lines = table.splitlines()
        assert len(set(lines)) == len(lines)


def test_docstrings_are_laid_out_for_the_site():
    spec = importlib.util.spec_from_file_location("docstrings", ROOT / "docs" / "docstrings.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    lines = inspect.getdoc(sgld.SGHMC).splitlines()
    found = module.rendered(lines)
    assert (
        "* ``friction``: alpha, the share of the velocity that a step removes, in (0, 1)." in found
    )
    start = found.index(".. code-block:: pycon")
    assert found[start + 2].startswith("    >>> import jax")
    laid = module.rendered(
        ["A *star*, `code_` and x_.", "", "    theta' = theta + h_1", "", "Raises: UsageError."]
    )
    words = [line for line in laid if line]
    assert words == [
        r"A \*star\*, ``code_`` and x\_.",
        "::",
        "    theta' = theta + h_1",
        "**Raises:** UsageError.",
    ]


def test_the_makefile_has_every_target_that_is_named():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for text in (*PAGES.values(), (ROOT / "CONTRIBUTING.md").read_text()):
        named = re.findall(r"`make ([a-z-]+)", text)
        for _, content, _ in blocks(text):
            named += re.findall(r"^(?:\$ )?make ([a-z-]+)", content, re.MULTILINE)
        assert set(named) <= targets
