"""`write_report`: every kind of run gets a page that is whole, safe and works offline."""

import dataclasses
import re
from html import unescape
from html.parser import HTMLParser

import numpy as np
import pytest

import sgld
from sgld.errors import RunError
from sgld.interfaces.report import html, predictive_check
from sgld.interfaces.report.page import write_report
from sgld.regression.formula import FormulaModel
from sgld.results import statistics
from sgld.results.draws import Draws
from sgld.results.run_directory import RunDirectory
from sgld.results.storage import write_result
from sgld.results.verdict import Verdict

pytest.importorskip("matplotlib", reason="the report extra is not installed")

EVIL = "<img src=x onerror=alert(1)>&\"'"
PLAN = {
    "sampler": "SGLD", "noise_correction": False, "gradient": "Minibatch", "order": "reshuffle",
    "preconditioner": "Scalar", "batch_size": 50, "step_size": 0.01, "temperature": 1.0,
    "burn_in": 100, "thin": 3, "num_draws": 500, "num_chains": 4, "nu": 0.01, "notes": ["a note"],
}  # fmt: skip


class Nesting(HTMLParser):
    """Checks that every element is closed in order; keeps tags and attributes."""

    void = ("meta", "br", "img", "wbr")

    def __init__(self):
        super().__init__()
        self.open, self.tags, self.attributes = [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [name for name, _ in attrs]
        if tag not in self.void:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def whole(page):
    parser = Nesting()
    parser.feed(page)
    assert not parser.open
    assert not {"script", "link", "iframe", "img"} & set(parser.tags)
    assert not [name for name in parser.attributes if name.startswith("on")]
    assert not re.search(r"https?://", re.sub(r'xmlns(:xlink)?="[^"]*"', "", page))
    assert not re.search(r"@import|url\((?!#)", page)
    return unescape(page)


def run(tmp_path, word="trusted", names=("a", "b", "c"), reasons=("sd within 3%.",), asked=None,
        status=("ok",) * 4, step_size=None, temperature=None, phase=None, **verdict):  # fmt: skip
    rng = np.random.default_rng(0)
    position = {"x": rng.normal(1, 0.1, (4, 500, len(names))).astype(np.float32)}
    for chain, word_of_chain in enumerate(status):
        if word_of_chain != "ok":
            position["x"][chain, 200:] = np.nan
    info = {
        "num_data": 1000, "num_steps": 1600, "seed": 0, "plan": PLAN, "seconds": 1.5,
        "laplace": {"mean": [1.0] * len(names), "sd": [0.1] * len(names)},
    }  # fmt: skip
    fields = {"names": names, "status": status, "info": info, "step": 100 + 3 * np.arange(500)}
    if phase is not None:
        info["phase"] = phase
    if step_size is not None:
        h = np.broadcast_to(step_size, (4, 500))
        fields |= {"step_size": h, "log_weight": np.log(h)}
    if temperature is not None:
        fields["temperature"] = np.broadcast_to(temperature, (4, 500))
    draws = Draws.of(position, **fields)
    filled = {"noise_ratio": 0.5, **verdict}
    draws = draws.with_verdict(Verdict(word, tuple(reasons), **filled))
    directory = RunDirectory(tmp_path / "run")
    directory.create(False)
    request = {
        "step_size": None,
        "batch_size": 50,
        "num_chains": "auto",
        "tolerance": 0.05,
        "seed": 0,
    }
    directory.begin(
        {"kind": "sample", "request": request, "given": {"step_size": f"Polynomial({EVIL})"},
         "versions": {"sgld": "0.1.0"}, "seed": 0, **(asked or {})},
    )  # fmt: skip
    write_result(directory, draws)
    return directory.path


def written(path):
    page = write_report(path)
    assert page == path / "report.html" and not list(path.glob("*.partial"))
    return whole(page.read_text("utf-8"))


@pytest.mark.parametrize("word", ["trusted", "biased", "not mixed", "unknown"])
def test_the_verdict_comes_first_with_its_reasons_and_how_to_read_it(tmp_path, word):
    page = written(run(tmp_path, word, reasons=("sd of 'a' is 20% off.", "use more draws")))
    body = page[page.index("<main>") :]
    assert f'<p class="word">{word}</p>' in body
    assert body.index(word) < body.index("Requested settings") < body.index("Parameters")
    assert "Use more draws." in body and f"<b>{word}</b> means: " in body
    for title in ("Intervals", "Marginals", "Traces", "Step size and noise"):
        assert f"<h2>{title}</h2>" in body
    assert (
        "batch_size = 50" in body and "num_chains" not in body and "a draw every 3rd step" in body
    )
    assert "Does the model fit?" not in body


def test_what_the_user_wrote_is_escaped(tmp_path):
    asked = {
        "kind": "formula", "formula": EVIL, "family": EVIL, "priors": [EVIL], "model": {},
        "data": {"path": EVIL, "absolute": EVIL, "sha256": EVIL},
    }  # fmt: skip
    path = run(tmp_path, names=(EVIL, "b\0", "$x_1$ {y} ${z}"), reasons=(EVIL,), asked=asked)
    page = written(path)
    raw = (path / "report.html").read_text("utf-8")
    assert "<img" not in raw and EVIL in page and "No predictive check was made: " in page
    assert "$x_1$ {y} ${z}" in page


def test_failed_chains_are_named_and_left_out(tmp_path):
    status = ("ok", "chain 1 became non-finite at step 300.", "ok", "ok")
    page = written(run(tmp_path, "biased", reasons=(status[1],), status=status))
    assert "1 of 4 chains failed; only the traces include it." in page
    assert page.count("hain 1 became non-finite") == 1  # the reasons name it already


def test_a_run_of_which_every_chain_failed(tmp_path):
    path = run(tmp_path)
    directory = RunDirectory(path)
    result = directory.read("result.json")
    result["status"] = ["chain became non-finite."] * 4
    result["verdict"] |= {"word": "biased", "reasons": result["status"]}
    directory.write("result.json", result)
    (path / "summary.json").unlink()
    page = written(path)
    assert "4 of 4 chains failed." in page and "has no table" in page


def test_a_schedule_and_its_noise_phase(tmp_path):
    h = 0.01 / (1 + np.arange(500)) ** 0.55
    phase = {
        "step": [0, 850, 1597], "step_size": [0.01, 0.0005, 0.0003], "temperature": [4, 2.5, 1],
        "level": [[4e3, 3e3, 2e3, None]] * 3,
    }  # fmt: skip
    temperature = np.linspace(4, 1, 500)
    page = written(run(tmp_path, step_size=h, temperature=temperature, phase=phase))
    assert "0.01, at the end" in page and "optimisation to step" in page
    assert "samples from step" in page
    assert "Temperature T" in page and "optimisation phase" in page and "sampling phase" in page
    assert "the Gaussian at the mode" not in page  # of no single temperature


def test_a_run_without_gradient_noise(tmp_path):
    page = written(run(tmp_path))
    assert "have no noise" in page and "optimisation phase" not in page


def test_what_is_cut_is_said(tmp_path):
    page = written(run(tmp_path, names=tuple(f"b[{i}]" for i in range(70))))
    assert "60 of 70 parameters are shown: those with the largest |mean| / sd" in page
    assert "24 of 70 parameters are shown" in page and "12 of 70 parameters are shown" in page
    assert page.count('<th scope="row"') == 70


def test_cells_that_miss_their_limit_are_marked(tmp_path):
    bad = {
        "sd_ratio": np.array([1.3, 1.0, np.nan]), "sd_ratio_se": np.array([0.01, 0.01, np.nan]),
        "r2": np.array([0.99, 0.2, 0.99]), "mean_corrected": np.array([1.2, np.nan, np.nan]),
        "sd_corrected": np.array([0.1, np.nan, np.nan]),
    }  # fmt: skip
    page = written(run(tmp_path, "biased", **bad))
    rows = re.findall(r'<tr><th scope="row".*?</tr>', page)
    marked = [re.findall(r'<td class="miss"[^>]*>([^<]*)<', row) for row in rows]
    assert marked[0][1:] == ["1.300 ± 0.010"] and marked[1] == ["0.200"] and marked[2] == ["–"]
    assert "Marked cells miss their limit" in page
    assert "No cell misses" in written(run(tmp_path / "good"))


def test_the_limit_of_r_hat_is_the_verdicts(rng):
    """The ESS of all falls as chains part: a limit by it would rise until nothing is marked."""
    values = rng.standard_normal((4, 400, 2))
    values[:2, :, 0] += 0.5
    draws = Draws.of({"x": values})
    rows = html.table(draws.summary().parameters, draws).split("<tr>")
    at_most = re.findall(r'title="limit: at most ([0-9.]+)"', rows[2])
    assert "x[0]" in rows[2] and "x[1]" in rows[3] and "limit: at most" not in rows[3]
    alone = statistics.Estimates(values, draws.weights).mixing.ess_alone[0]
    assert float(at_most[0]) == pytest.approx(float(statistics.max_r_hat(alone, 4, 2)), abs=1e-3)


def test_draws_saved_by_hand_have_a_page(tmp_path):
    draws = Draws.of({"a": np.random.default_rng(0).normal(size=(2, 300))})
    page = written(draws.save(tmp_path / "saved"))
    assert "The draws were not judged." in page and "the draws come from elsewhere" in page


def test_a_page_twice_is_the_same_page(tmp_path):
    path = run(tmp_path)
    first = write_report(path).read_bytes()
    assert write_report(str(path)).read_bytes() == first and len(first) < 2e6


def test_an_unfinished_run_has_no_page(tmp_path):
    with pytest.raises(RunError, match="no run directory"):
        write_report(tmp_path / "nowhere")
    path = run(tmp_path)
    (path / "result.json").unlink()
    with pytest.raises(RunError, match="not finished"):
        write_report(path)
    assert not (path / "report.html").exists()


def test_decimals_follow_the_sd():
    assert html._decimals(0.01129) == 4 and html._decimals(250.0) == 0
    assert html._decimals(None) is None and html._decimals(1e-9) is None


@pytest.mark.parametrize("family", ["poisson", "gaussian", "bernoulli"])
def test_a_formula_run_is_checked_against_its_data(tmp_path, family):
    pytest.importorskip("formulaic", reason="the tables extra is not installed")

    rng = np.random.default_rng(0)
    x = rng.normal(size=300)
    outcome = {
        "poisson": rng.poisson(np.exp(x)), "gaussian": 5 + x + rng.normal(size=300),
        "bernoulli": (rng.random(300) < 1 / (1 + np.exp(-x))) * 1,
    }[family]  # fmt: skip
    file = tmp_path / "rows.csv"
    lines = [f"{y},{v}" for y, v in zip(outcome, x, strict=True)]
    file.write_text("\n".join(["y,x", *lines]) + "\n")
    from sgld.data.tables import content_hash, read_table

    model = FormulaModel.build(read_table(file), "y ~ x", family)
    place = {"poisson": (0, 1), "gaussian": (5, 1, 1), "bernoulli": (0, 1)}[family]
    flat = np.array(place) + 0.05 * rng.normal(size=(4, 500, len(place)))
    position = {"coefficients": flat[..., :2]}
    if family == "gaussian":
        position["sigma"] = flat[..., 2]
    draws = Draws.of(position, names=model.names, info={"num_data": 300, "plan": PLAN})
    directory = RunDirectory(tmp_path / "run")
    directory.create(False)
    source = {"path": "rows.csv", "absolute": str(file), "sha256": content_hash(file)}
    asked = {"kind": "formula", "formula": "y ~ x", "family": family, "data": source}
    directory.begin({**asked, "model": model.spec, "seed": 0})
    write_result(directory, draws)
    page = written(directory.path)
    assert "Does the model fit?" in page and "for all 300 rows" in page
    good = {"poisson": "the spread fits", "gaussian": "agree with the model",
            "bernoulli": "are calibrated"}  # fmt: skip
    assert good[family] in page
    file.write_text("y,x\n1,2\n")
    assert "has changed since" in written(directory.path)
    file.unlink()
    assert "is missing" in written(directory.path)


@pytest.mark.parametrize(
    ("num_data", "observed", "said"),
    [
        (300, 4.0, ": the spread fits."),
        (9000, 4.0, ": the spread fits in 300 of the 9,000 rows."),
        (300, None, "the variance fits, but the zeros do not."),
    ],
)
def test_the_spread_fits_where_all_rows_say_so(num_data, observed, said):
    rng = np.random.default_rng(0)
    replicas = rng.poisson(4.0, (200, 300)).astype(float)
    y = rng.poisson(4.0, 300).astype(float)
    if observed is None:  # no zeros, and the same variance
        y = np.where(np.arange(300) % 2 == 0, 2.0, 6.0)
    made = predictive_check.Replicated(y, replicas, np.full(300, 4.0), "y", num_data, 300)
    assert said in predictive_check.check("poisson", made)[1]


@pytest.mark.parametrize("family", ["poisson", "gaussian", "bernoulli"])
def test_single_numbers_are_of_all_rows(family):
    """A slip that 5,000 rows do not show: of 60,000 it is far out, and the page says so."""
    rng = np.random.default_rng(3)
    n = 60_000
    x = rng.normal(size=n)
    outcome = {
        "poisson": rng.negative_binomial(30, 30 / (30 + np.exp(0.2 * x))),  # variance 1.03 times
        "gaussian": x + rng.gamma(800.0, size=n) / np.sqrt(800),  # skewness .07
        "bernoulli": rng.random(n) < 1 / (1 + np.exp(-x - 0.06 * (x**2 - 1))),
    }[family] * 1.0  # fmt: skip
    model = FormulaModel.build({"x": x, "y": outcome}, "y ~ x", family)
    place = {"poisson": (0, 0.2), "gaussian": (outcome.mean(), 1, 1), "bernoulli": (0, 1)}[family]
    flat = np.array(place) + 0.004 * rng.normal(size=(4, 100, len(place)))
    position = {"coefficients": flat[..., :2]}
    if family == "gaussian":
        position["sigma"] = flat[..., 2]
    made = predictive_check.replicate(model, Draws.of(position, names=model.names), 0)
    assert made.num_rows == 5000 and made.totals.num_rows == n
    np.testing.assert_allclose(made.totals.variance[0], outcome.var())
    found_fault = {
        "poisson": "are overdispersed", "gaussian": "a longer upper tail",
        "bernoulli": "are not calibrated",
    }[family]  # fmt: skip
    part = dataclasses.replace(made, totals=None)
    assert found_fault in predictive_check.check(family, made)[1]
    assert found_fault not in predictive_check.check(family, part)[1]


def test_the_public_way_in():
    assert sgld.load is not None and callable(write_report)


@pytest.mark.parametrize("word", ["trusted", "biased", "not mixed", "unknown"])
def test_a_banner_over_predictions_promises_nothing_of_weights(word):
    over = html.banner(word, ("as it is.",), "", "the posterior", predictions=True)
    assert f"<b>{word}</b> means: " in over and "{" not in over
    assert "every sd" not in over and "an sd or a mean" not in over
    plain = html.banner("trusted", ("as it is.",), "", "the posterior")
    assert "every sd is within 10%" in plain


@pytest.mark.parametrize("word", ["trusted", "unknown"])
def test_a_model_that_does_not_fit_stands_with_the_verdict(word):
    from sgld.inference.tuning.gaussian import misfit_notes
    from sgld.interfaces.notebook import view

    (note,), (other,) = misfit_notes(2.0, 1000), misfit_notes(0.4, 1000)
    draws = Draws.of({"x": np.zeros((4, 100))})
    draws = dataclasses.replace(
        draws, verdict=Verdict(word, ("a reason",)), info={"plan": {"notes": [note, other]}}
    )
    summary = draws.summary()
    for text in (view(draws), view(summary)):
        box = text[text.index("<section") : text.index("</section")]
        assert "does not fit" in box and "1.4 times too small" in box
        assert ("can be trusted" in box) is (word == "trusted")
    table, _, verdict = str(summary).partition("verdict:")
    assert "misspecified" in table and "too small" not in table
    assert "does not fit" in verdict


def test_a_title_is_the_heading(tmp_path):
    path = run(tmp_path, asked={"formula": "y ~ x"})
    shell = whole(write_report(path, title=EVIL).read_text("utf-8"))
    called = sgld.load(path).report(tmp_path / "own.html", title=EVIL).read_text("utf-8")
    for page in (shell, whole(called)):
        assert f"<h1>{EVIL}</h1>" in page and f": {EVIL}</title>" in page
    assert "<h1>y ~ x</h1>" in written(path)
