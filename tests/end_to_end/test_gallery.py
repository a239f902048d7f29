"""The gallery: its checks, its pages opened in a browser, and every entry in its quick size."""

import json
import re
import sys
import types

import numpy as np
import pytest

pytest.importorskip("matplotlib", reason="the report extra is not installed")

from typer.testing import CliRunner

from sgld import gallery
from sgld.errors import MissingExtra, UsageError
from sgld.gallery import Check, Entry, Section, handout
from sgld.gallery.page import histogram, lines
from sgld.interfaces.cli import app

CHEAP = ("X6", "X11")


# -- checks ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("check", "word"),
    [
        (Check.in_sd("q", 1.0, 1.4, 4.0, 0.1), "pass"),
        (Check.in_sd("q", 1.0, 1.5, 4.0, 0.1), "miss"),
        (Check.in_sd("q", 1.0, 0.5, 4.0, 0.1), "miss"),
        (Check.in_ratio("q", 2.0, 2.1, 0.06), "pass"),
        (Check.in_ratio("q", 2.0, 2.2, 0.06), "miss"),
        (Check.in_ratio("q", 2.0, 1.8, 0.06), "miss"),
        (Check.in_ratio("q", 2.0, 1.8, 0.06, "printed so"), "as printed"),
        (Check.in_ratio("q", 2.0, 2.0, 0.06, "printed so"), "pass"),
        (Check.in_value("q", 0.0, 0.019, 0.02), "pass"),
        (Check.in_value("q", 0.0, -0.021, 0.02), "miss"),
        (Check.in_value("q", 0.0, np.nan, 0.02), "miss"),
        (Check.in_ratio("q", 1.0, np.nan, 0.02), "miss"),
        (Check.in_sd("q", 0.0, np.inf, 1.0, 0.02), "miss"),
    ],
)
def test_a_check_says_pass_miss_or_as_printed(check, word):
    assert check.word == word and check.passed == (word == "pass")


# -- the frame ------------------------------------------------------------------------------


def plant(monkeypatch, name, run, title="A title"):
    """Put a module in place of an entry's, its source this file."""
    module = types.ModuleType(f"sgld.gallery.{name.lower()}")
    module.__dict__.update(TITLE=title, run=run, __file__=__file__)
    monkeypatch.setitem(sys.modules, module.__name__, module)


def small(quick=False, seed=0):
    figure = histogram("a & b", np.random.default_rng(seed).normal(size=400), [lambda x: 0 * x])
    return Entry(
        "A title",
        "Lead with s_i and `a_b`",
        (
            Section(
                "Head <b>", ("x < y & `step_size` and D^{1/2}, s_i",), (figure,), (("ink", "k"),)
            ),
        ),
        (
            Check.in_value("good <i>", 0.0, 0.01, 0.02),
            Check.in_ratio("printed", 1.0, 3.0, 0.1, "the step is too large"),
        ),
    )


def missing(quick=False, seed=0):
    raise MissingExtra("torch is needed for this; install it with: pip install 'sgld[torch]'")


def wrong(quick=False, seed=0):
    return Entry("Wrong", "", (), (Check.in_value("q", 0.0, 1.0, 0.5),))


def test_pages_and_index_of_good_missed_and_impossible_entries(monkeypatch, tmp_path):
    for name, run in (("X1", small), ("X4", missing), ("X8", wrong)):
        plant(monkeypatch, name, run)
    seen = []
    first = gallery.make(["x8"], tmp_path / "g", quick=True, progress=False)
    results = gallery.make(["X4", "X1"], tmp_path / "g", seed=3, on_result=seen.append)
    assert seen == results and [r.name for r in results] == ["X1", "X4"]
    assert [r.missed for r in (*results, *first)] == [False, True, True]
    assert (results[0].count("pass"), results[0].count("as printed")) == (1, 1)
    assert "install it with" in str(results[1]) and "1 missed" in str(first[0])
    names = {path.name for path in (tmp_path / "g").iterdir()}
    assert names == {"index.html", "x1.html", "x1.json", "x4.json", "x8.html", "x8.json"}
    index = (tmp_path / "g" / "index.html").read_text()
    assert re.findall(r'href="([^"]*)"', index) == ["x1.html", "x8.html"]
    assert "torch is needed" in index and index.count('class="miss"') == 2
    assert "quick" in index and "full" in index  # X8 of the call before is still there
    page = (tmp_path / "g" / "x1.html").read_text()
    assert "1 computed as printed misses the truth" in page
    assert "as printed (1)" in page and "the step is too large" in page
    assert "good &lt;i&gt;" in page and "x &lt; y &amp; <code>step_size</code>" in page
    assert "D<sup>1/2</sup>, s<sub>i</sub>" in page and "<code>a_b</code>" in page
    assert "def test_pages_and_index" in page  # the code that made it
    assert "<b>" not in page and "Head &lt;b&gt;" in page
    stored = json.loads((tmp_path / "g" / "x1.json").read_text())
    assert stored["seed"] == 3 and [c["truth"] for c in stored["checks"]] == [0.0, 1.0]


def test_an_entry_that_can_no_longer_be_run_leaves_no_stale_page(monkeypatch, tmp_path):
    plant(monkeypatch, "X1", small)
    gallery.make(["X1"], tmp_path, progress=False)
    assert (tmp_path / "x1.html").exists()
    plant(monkeypatch, "X1", missing)
    gallery.make(["X1"], tmp_path, progress=False)
    assert not (tmp_path / "x1.html").exists()


@pytest.mark.parametrize(
    ("names", "options", "said"),
    [
        (["X12"], {}, "no gallery entry 'X12'; the entries are X1 to X11. Did you mean 'X"),
        (["X1", "x03"], {}, "no gallery entry 'x03'.*Did you mean 'X3'"),
        (["X1"], {"seed": -1}, "seed must be a whole number.*Got -1"),
        (["X1"], {"out": __file__}, "out must be a folder.*test_gallery.py"),
    ],
)
def test_refused_in_a_sentence_and_nothing_written(names, options, said, tmp_path):
    with pytest.raises(UsageError, match=said):
        gallery.make(names, **{"out": tmp_path / "g", **options})
    assert not (tmp_path / "g").exists()


# -- what is not installed ----------------------------------------------------------------------


@pytest.fixture
def without_torch(monkeypatch):
    """A machine without PyTorch, and entries that cost nothing: X8 the real one."""
    monkeypatch.setitem(sys.modules, "torch", None)
    for name in set(gallery.EXPERIMENTS) - {"X8"}:
        plant(monkeypatch, name, small)


def test_without_torch_all_but_x8_are_made_and_that_is_no_failure(without_torch, tmp_path):
    (tmp_path / "x8.html").write_text("of another time")
    result = CliRunner().invoke(app, ["gallery", "--quick", "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert "X8   not made: needs PyTorch: pip install 'sgld[torch]'" in result.stdout
    index = (tmp_path / "index.html").read_text()
    assert "not made: needs PyTorch: pip install &#x27;sgld[torch]&#x27;" in index
    assert 'href="x7.html"' in index and 'href="x8.html"' not in index
    assert not (tmp_path / "x8.html").exists() and 'class="miss"' not in index


def test_without_torch_x8_by_name_is_refused_before_anything_is_run(without_torch, tmp_path):
    result = CliRunner().invoke(app, ["gallery", "X1", "x8", "--out", str(tmp_path / "g")])
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.strip() == "X8 needs PyTorch: pip install 'sgld[torch]'"
    assert not (tmp_path / "g").exists()


# -- a table of one's own -----------------------------------------------------------------------


def test_data_reach_x9_alone(monkeypatch, tmp_path):
    seen = {}

    def takes(quick, seed, data=None):
        seen["X9"] = data
        return small()

    for name, run in (("X1", small), ("X9", takes)):
        plant(monkeypatch, name, run)
    rows = [f"{(-1) ** i} 1:{i} 3:{-i}" for i in range(30)]
    (tmp_path / "own").write_text("\n".join(rows) + "\n")
    names = ["gallery", "x9", "X1", "--data", str(tmp_path / "own"), "--out", str(tmp_path / "g")]
    result = CliRunner().invoke(app, names)
    assert result.exit_code == 0, result.output
    name, X, y = seen["X9"]
    assert name == "own" and X.shape == (30, 3)
    np.testing.assert_array_equal(X[:, 2], -np.arange(30))
    np.testing.assert_array_equal(y, np.arange(30) % 2 == 0)
    gallery.make(["X9"], tmp_path / "g", progress=False)
    assert seen["X9"] is None


@pytest.mark.parametrize(
    ("names", "text", "said"),
    [
        ([], "1 1:2\n", "data is for X9 alone; ask for it: sgld gallery X9 --data"),
        (["X1"], "1 1:2\n", "data is for X9 alone"),
        (["X9"], "1 1:2\n-1 1:x\n", "line 2 must be `label index:value ...`"),
        (["X9"], "1 1:2\n-1 1:3\n", "own must hold 20 rows or more"),
        (["X9"], None, "there is no file"),
    ],
)
def test_data_are_refused_in_a_sentence_and_nothing_is_written(names, text, said, tmp_path):
    if text is not None:
        (tmp_path / "own").write_text(text)
    options = ["--data", str(tmp_path / "own"), "--out", str(tmp_path / "g")]
    result = CliRunner().invoke(app, ["gallery", *names, *options])
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr and len(result.stderr.splitlines()) == 1
    assert not (tmp_path / "g").exists()


def test_the_help_says_where_the_label_stands():
    text = " ".join(CliRunner().invoke(app, ["gallery", "--help"]).output.replace("│", " ").split())
    for words in ("libsvm", "the label in the last column", "-1 and +1 or 0 and 1"):
        assert words in text


def test_no_names_are_all_entries_in_order():
    assert (
        gallery.EXPERIMENTS[0] == "X1"
        and gallery.EXPERIMENTS[-1] == "X11"
        and len(gallery.EXPERIMENTS) == 11
    )


# -- the handout's closed forms ---------------------------------------------------------------


def test_the_handouts_exact_posterior_and_the_predicted_sds():
    _, law = handout.problem()
    np.testing.assert_allclose(law.mu, (5.10337437e-4, 0.908609692), rtol=1e-7)
    np.testing.assert_allclose((law.phi, law.psi), (5001, 948.2831416), rtol=1e-9)
    exact = handout.exact()
    sds = [exact[name].std() for name in handout.HANDOUT_NAMES]
    np.testing.assert_allclose(sds, (0.00435496, 0.00430862, 0.00268242), rtol=1e-5)
    np.testing.assert_allclose(exact["σ²"].mean(), 0.18965663, rtol=1e-7)
    for T, expected in ((0.5, (0.084, 0.027, 0.0087)), (1.0, (0.084, 0.027, 0.0094))):
        found = [float(f"{handout.predicted(m, T).std():.2g}") for m in (10, 100, 1000)]
        assert found == list(expected)


# -- opened in a browser ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    out = tmp_path_factory.mktemp("gallery")
    return out, gallery.make(CHEAP, out, quick=True, progress=False)


def test_cheap_entries_pass_their_checks(made):
    for result in made[1]:
        assert not result.missed and result.count("pass") >= 6, result


def test_pages_need_nothing_from_elsewhere(made):
    for path in made[0].glob("*.html"):
        outside = re.findall(r'(?:href|src)="(?!#|x\d+\.html|index\.html)[^"]*"', path.read_text())
        links = re.findall(
            r"url\((?!#)|@import|<script|https?://(?!www\.w3\.org/)", path.read_text()
        )
        assert outside == [] and links == []


def test_figures_are_drawn_and_checks_are_shown(made, browser, figures):
    out, results = made
    for width, scheme in ((1200, "light"), (400, "dark")):
        page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        asked, wrong = [], []
        page.on("request", lambda request: asked.append(request.url))  # noqa: B023
        page.on("console", lambda message: wrong.append(message.text))  # noqa: B023
        page.goto((out / "index.html").as_uri())
        assert page.locator("#index tbody tr").count() == len(results)
        for result, count in zip(results, (5, 2), strict=True):
            page.goto((out / "index.html").as_uri())
            page.get_by_role("link", name=result.name).click()
            page.wait_for_load_state()
            boxes, clipped = figures(page)
            assert len(boxes) == count and np.min(boxes) > 20
            assert clipped == []
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
            assert page.locator("#checks tbody tr").count() == len(result.checks)
            assert page.locator("#checks tbody td", has_text="pass").first.is_visible()
        assert all(url.startswith("file:") for url in asked) and wrong == []
        page.close()


def test_figures_keep_their_numbers_on_log_axes():
    x = np.linspace(1, 9, 5000)
    svg = lines("t", [("a", x, 1e-3 * x), ("b", x, 10 * x)], log="y", xlabel="k").svg()
    assert all(f">{text}<" in svg.replace("\n", "") for text in ("0.01", "1", "10"))
    assert len(svg) < 60_000  # 5,000 points are thinned


# -- all of it --------------------------------------------------------------------------------


NEEDS_TORCH = pytest.param("X8", marks=pytest.mark.torch)


@pytest.mark.slow
@pytest.mark.parametrize("name", [NEEDS_TORCH if n == "X8" else n for n in gallery.EXPERIMENTS])
def test_every_entry_in_its_quick_size(name, tmp_path):
    (result,) = gallery.make([name], tmp_path, quick=True, progress=False)
    assert result.error is None and result.checks
    missed = [c for c in result.checks if c.word == "miss"]
    assert missed == [], missed
