"""How the project writes: short sentences, docstrings that begin with a verb, the terms of the field."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
PAGES += [page for page in sorted(ROOT.glob("docs/**/*.md")) if "_build" not in page.parts]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
MEAN_WORDS, MAX_WORDS = 20, 40  # of a sentence
README_LINES, VERDICT_WORDS = 120, 1500
VERB_SHARE = 0.95  # of the docstrings of functions
VERBS = set((ROOT / "tests" / "verbs.txt").read_text().split())
MAX_PRIVATE = 20
PRIVATE = re.compile(
    r"\b(?:told|anew|mend(?:ed|s)?|beside|letters|doors?|rooms|by hand|half the step|learnt)\b",
    re.IGNORECASE,
)
BLOCK = re.compile(r"^( *)(```|\$\$).*?^\1\2[ ]*$", re.MULTILINE | re.DOTALL)
ABBREVIATION = re.compile(r"\b(e\.g|i\.e|et al|cf|vs|approx|resp|Eq|Fig|Sec)\.")


def name_of(path):
    return str(path.relative_to(ROOT))


# -- pages -----------------------------------------------------------------------------------


def paragraphs(text):
    """Yield the prose: without blocks, tables, headings, equations, pictures, comments and code."""
    text = BLOCK.sub("\n", text)
    text = re.sub(r"\$\$.*?\$\$", "\n", text, flags=re.DOTALL)
    text = re.sub(r"^(?:\||#|%|\(|!\[|:::).*$", "", text, flags=re.MULTILINE)
    text = re.sub(r"(`+)[^`]+\1", "code", text)
    text = re.sub(r"\$[^$\n]+\$", "x", text)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"^\s*(?:[-*+]|\d+\.|:|>) ", "\n\n", text, flags=re.MULTILINE)
    for paragraph in re.split(r"\n\s*\n", text):
        if paragraph.strip():
            yield " ".join(paragraph.split())


def sentences(text):
    """Return the sentences of a page, each a list of words."""
    found = []
    for paragraph in paragraphs(text):
        paragraph = ABBREVIATION.sub(r"\1", paragraph)
        for sentence in re.split(r"(?<=[.!?])[)*_\"']*\s+(?![a-z](?!ode\b))", paragraph):
            words = [word for word in sentence.split() if re.search(r"\w", word)]
            if words:
                found.append(words)
    return found


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_sentences_are_short(page):
    found = sentences(page.read_text())
    long = [" ".join(words) for words in found if len(words) > MAX_WORDS]
    assert long == []
    mean = sum(map(len, found)) / max(len(found), 1)
    assert mean <= MEAN_WORDS, f"{mean:.1f} words a sentence"


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CHANGELOG.md"], ids=name_of)
def test_no_page_holds_a_commit_or_a_hidden_remark(page):
    text = page.read_text()
    hashes = re.findall(r"(?<![\w#/.-])(?=\w*\d)(?=\w*[a-f])[0-9a-f]{7,40}(?![\w-])", text)
    assert hashes == [] and "<!--" not in text


def test_the_pages_that_are_read_first_are_short():
    assert len((ROOT / "README.md").read_text().splitlines()) <= README_LINES
    assert len((ROOT / "docs" / "verdict.md").read_text().split()) <= VERDICT_WORDS


def test_sentences_are_found():
    text = """# Title

Two words. `A code` call, e.g. this one (Eq. 3), has [a link](page.md) in it.
The mean $x$ is one, .25 of it is
- an item. Another

| not | this |

```python
nor.this()
```
"""
    assert [len(words) for words in sentences(text)] == [2, 12, 9, 2, 1]


# -- source ----------------------------------------------------------------------------------


def docstrings(tree):
    """Yield (line, name, docstring) of every function that is not a property or a __method__."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        read = any("property" in ast.unparse(decorator) for decorator in node.decorator_list)
        text = ast.get_docstring(node)
        if text and not read and not re.fullmatch(r"__\w+__", node.name):
            yield node.lineno, node.name, text


def test_docstrings_begin_with_a_verb():
    count, wrong = 0, []
    for path in SOURCES:
        for line, name, text in docstrings(ast.parse(path.read_text())):
            count += 1
            if re.split(r"\W", text, maxsplit=1)[0] not in VERBS:
                first = text.splitlines()[0]
                wrong.append(f"{name_of(path)}:{line} {name}: {first}")
    assert len(wrong) <= (1 - VERB_SHARE) * count, "\n".join(wrong)


def test_the_verbs_are_listed_once_in_order():
    listed = (ROOT / "tests" / "verbs.txt").read_text().split()
    assert listed == sorted(set(listed))


def test_private_words_are_rare():
    """`.word`, an attribute of a verdict, is a public name."""
    found = []
    for path in (*SOURCES, *PAGES):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            found += [f"{name_of(path)}:{number} {match}" for match in PRIVATE.findall(line)]
    assert len(found) <= MAX_PRIVATE, "\n".join(found)
