"""What a notebook shows in the place of what this package returns: complete, escaped, light and dark."""

from html.parser import HTMLParser

import numpy as np
import pytest

import sgld
from sgld.interfaces.notebook import MAX_SHOWN_ROWS, view
from sgld.results.verdict import Verdict


class Reader(HTMLParser):
    """The tags of a page, each closed where it should be, and its words."""

    VOID = {"br", "hr", "img", "meta", "wbr"}  # noqa: RUF012

    def __init__(self):
        super().__init__()
        self.open, self.words, self.rows = [], [], 0

    def handle_starttag(self, tag, attrs):
        self.rows += tag == "tr"
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" not in self.open:
            self.words.append(data)


def read(thing):
    html = thing._repr_html_()
    reader = Reader()
    reader.feed(html)
    assert reader.open == [] and html == view(thing)
    for theme in ("prefers-color-scheme: dark", 'data-jp-theme-light="false"', ".vscode-dark"):
        assert theme in html
    assert "<script" not in html
    return reader, "".join(reader.words)


@pytest.fixture
def draws(rng):
    found = sgld.Draws.of({"b": rng.normal(size=(4, 200, 3)), "<i>": rng.normal(size=(4, 200))})
    return found.with_verdict(Verdict("not mixed", ("R-hat of 'b[1]' is 1.2 & more",)))


def test_draws_and_summary_show_verdict_and_table(draws):
    for thing in (draws, draws.summary()):
        reader, words = read(thing)
        assert "not mixed" in words and "R-hat of 'b[1]' is 1.2 & more" in words
        assert reader.rows == 5 and "<i>" in words and "4 chains of 200 draws" in words
        assert 'class="banner not-mixed"' in thing._repr_html_()


def test_many_parameters_are_a_table_that_ends(rng):
    reader, words = read(sgld.Draws.of({"b": rng.normal(size=(2, 50, 90))}))
    assert (
        reader.rows == MAX_SHOWN_ROWS + 1
        and f"The first {MAX_SHOWN_ROWS} of 90 parameters" in words
    )
    reader, words = read(sgld.Draws.of({"b": np.zeros((2, 5, 2000))}))
    assert reader.rows == 0 and "2,000 parameters" in words


def test_draws_of_failed_chains_say_so():
    failed = sgld.Draws.of(
        {"a": np.zeros((1, 5))}, status=("chain 0 became non-finite at step 3.",)
    )
    _, words = read(failed)
    assert "became non-finite at step 3" in words


def test_verdict_plan_and_fit(rng):
    x = rng.normal(size=200)
    fit = sgld.fit({"x": x, "y": x + rng.normal(size=200)}, "y ~ x", progress=False)
    _, words = read(fit)
    assert "y ~ x" in words and "sigma" in words and "Requested settings" in words
    _, words = read(fit.draws.plan)
    assert "step size h" in words and "Predicted:" in words
    _, words = read(fit.verdict)
    assert fit.verdict.word in words and "means" in words
    _, words = read(sgld.loo(fit.draws, progress=False))
    assert "elpd_loo" in words and "reliable" in words


def test_comparison_and_prediction(draws):
    reader, words = read(sgld.compare(draws, draws))
    assert reader.rows == 5 and "1.000 ±" in words and "worst: mean of" in words
    assert "<i>" in words  # a name, not a tag
    found = draws.predict(lambda p, x: {"y": p["b"] * x, "z": p["b"][0]}, 2.0)
    reader, words = read(found)
    assert reader.rows == 5 and "y[2]" in words and f"{found.sd['z']:.4g}" in words
    reader, words = read(draws.predict(lambda p, x: p["b"][0] * x, np.arange(99.0, dtype=np.float32)))  # fmt: skip
    assert reader.rows == MAX_SHOWN_ROWS + 1 and f"The first {MAX_SHOWN_ROWS} of 99" in words
