"""The panels: valid SVG in the page's colours, weights honoured, names never read as markup."""

import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
import scipy.stats

pytest.importorskip("matplotlib", reason="the report extra is not installed")

from sgld.interfaces.report import figures, predictive_check
from sgld.interfaces.report import figures as canvas


def parsed(svg):
    return ElementTree.fromstring(svg)


def texts(svg):
    return ["".join(e.itertext()) for e in parsed(svg).iter() if e.tag.endswith("}text")]


STEPS = np.arange(100, 1100)
DRAWS = np.random.default_rng(1).normal(2.0, 0.1, (4, 1000))
EQUAL = np.full(4000, 1 / 4000)


def every_panel(name="slope"):
    ends = np.array([[-1.0, 0.5], [-0.2, 0.9]])
    yield figures.forest([name, "b"], ends, 0.5 * ends, ends.mean(axis=0))
    yield figures.forest([name * 4, "b"], ends, 0.5 * ends, ends.mean(axis=0), (-2, 2))
    yield figures.marginal(name, DRAWS.ravel(), EQUAL, (2.0, 0.1))
    yield figures.trace(name, STEPS, DRAWS)
    yield figures.over_steps(name, STEPS, 1e-3 * STEPS**-0.55, 100)
    yield figures.over_steps(name, STEPS, np.full(1000, 1e-6), 0)
    yield figures.noise_phase(STEPS, np.outer(200 * STEPS**-1.0, [1, 2, np.nan]), 400)


def test_every_panel_is_svg_with_the_page_s_colours_and_no_others():
    for svg in every_panel():
        root = parsed(svg)
        assert root.tag.endswith("svg") and root.get("viewBox") and root.get("aria-label")
        outside = re.sub(r"var\(--[a-z0-9-]+, #[0-9a-f]{6}\)", "", svg)
        assert not re.search(r"(fill|stroke): #[0-9a-f]{6}", outside)
        assert " id=" not in re.sub(r'<(clipPath|path) id="[^"]*"', "", svg)


def test_a_name_is_text_whatever_it_holds():
    name = "<script>alert('$x_1$ & \"y\"')</script>"
    for svg in every_panel(name):
        assert "<script" not in svg
    assert name in texts(figures.trace(name, STEPS, DRAWS))
    assert "a\ufffdb" in texts(figures.trace("a\0b", STEPS, DRAWS))
    assert "数" in texts(figures.trace("数", STEPS, DRAWS))  # no warning about a glyph


def heights(svg):
    """Heights of the histogram's first (filled) outline."""
    path = next(e for e in parsed(svg).iter() if e.tag.endswith("}path") and e.get("clip-path"))
    points = re.findall(r"[ML] ([\d.-]+) ([\d.-]+)", path.get("d"))
    return np.array(points, float)


def test_a_weighted_histogram_is_another_histogram():
    values = np.linspace(-1, 1, 2001)
    tilted = np.exp(2 * values)
    equal = heights(figures.marginal("t", values, np.ones(2001)))
    weighted = heights(figures.marginal("t", values, tilted))
    assert not np.array_equal(equal[:, 1], weighted[:, 1])
    # y grows downwards: the right end stands higher than the left one
    right, left = weighted[weighted[:, 0] > 250, 1].min(), weighted[weighted[:, 0] < 80, 1].min()
    assert right < left - 20
    # twice the weight of some draws is the same as those draws twice
    twice = figures.marginal("t", values, np.where(values > 0, 2.0, 1.0))
    share = np.histogram(values, 2, weights=np.where(values > 0, 2.0, 1.0))[0]
    assert twice != figures.marginal("t", values, np.ones(2001)) and share[1] > 1.9 * share[0]


def test_a_draw_without_weight_is_not_drawn():
    values = np.append(np.linspace(-1, 1, 1000), 50.0)
    with_outlier = figures.marginal("t", values, np.append(np.ones(1000), 0.0))
    assert float(texts(with_outlier)[-2].replace("\N{MINUS SIGN}", "-")) < 2


def test_a_parameter_that_does_not_move_and_a_chain_that_failed():
    parsed(figures.marginal("still", np.full(100, 3.0), np.ones(100), (3.0, 0.0)))
    failed = DRAWS.copy()
    failed[1, 400:] = np.nan
    failed[1, 390:400] = 1e30
    svg = figures.trace("t", STEPS, failed)
    assert max(float(t.replace("\N{MINUS SIGN}", "-")) for t in texts(svg)[5:-1]) < 3000
    parsed(figures.forest(["still"], np.full((2, 1), 3.0), np.full((2, 1), 3.0), np.array([3.0])))


@pytest.mark.parametrize("name", ["slope", "C(region)[T.South East and Anglia]:smoker[T.yes]"])
def test_names_and_numbers_stand_beside_their_bar_and_outside_the_axes(name):
    ends = np.array([[-1.0, 0.5], [-0.2, 0.9]])
    svg = figures.forest([name, "b"], ends, 0.5 * ends, ends.mean(axis=0), (-2, 2))
    left, _, wide, high = map(
        float, re.search(r'<rect x="(.*?)" y="(.*?)" width="(.*?)" height="(.*?)"', svg).groups()
    )
    bars = [float(y) for y in re.findall(r"M [\d.]+ ([\d.]+) \nL [^<]*--accent", svg)][:2]
    found = re.findall(r"text-anchor: (\w+)?[^>]* x=\"([\d.]+)\" y=\"([\d.]+)\"", svg)
    found += [
        ("start", *place) for place in re.findall(r"<text [^>]*translate\(([\d.]+) ([\d.]+)\)", svg)
    ]
    beside = [(side, float(x), float(y)) for side, x, y in found if float(y) < high]
    rows = [np.abs(np.array(bars) - (y - 3)).argmin() for _, _, y in beside]
    assert sorted(set(rows)) == [0, 1]
    for side, x, y in beside:
        assert x < left if side == "end" else x > left + wide
        assert np.abs(np.array(bars) - (y - 3)).min() < 13
    shown = "".join(texts(svg))
    assert "−0.60" in shown and "[−1.00, −0.20]" in shown and name[-6:] in shown


def test_intervals_of_a_like_scale_share_an_axis():
    middle = np.array([0.70, -0.05, 0.25, 0.03, 0.0001])
    groups = figures.by_scale(middle - 1e-5, middle + 1e-5)
    assert [g.tolist() for g in groups] == [[0, 2], [1, 3], [4]]
    wide = figures.by_scale(middle - 0.05, middle + 0.05)
    assert [g.tolist() for g in wide] == [[0, 1, 2, 3, 4]]
    many = figures.by_scale(np.zeros(9), 10.0 ** np.arange(9))
    assert len(many) == 4 and sorted(np.concatenate(many)) == list(range(9))


@pytest.mark.parametrize(
    ("places", "expected"),
    [
        ([0, 0.025, 0.05], ["0.000", "0.025", "0.050"]),
        ([-0.0375, -0.035], ["−0.0375", "−0.0350"]),
        ([5000.001, 5000.002], ["5000.001", "5000.002"]),
        ([0, 2e-7, 4e-7], ["0", "2e−7", "4e−7"]),
        ([0, 2000, 4000], ["0", "2000", "4000"]),
    ],
)
def test_tick_texts_have_the_decimals_they_need(places, expected):
    assert canvas.tick_texts(np.array(places)) == expected


def test_a_long_name_keeps_both_ends():
    assert canvas.shorten("C(neighbourhood)[T.Manhattan]", 20) == "C(neighbou…anhattan]"


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("age", ["age"]),
        ("number_of_visits_per_year", ["number_of_", "visits_per_year"]),
        ("C(region)[T.North East]", ["C(region)", "[T.North East]"]),
        ("high: C(region)[T.North]", ["high:", "C(region)[T.North]"]),
        ("C(region)[T.South East]:smoker[T.yes]", ["C(region)[T…outh East]", ":smoker[T.yes]"]),
        ("a" * 60, ["aaaaaaaaaaa…aaaaaaaaaa"] * 2),
    ],
)
def test_a_name_is_broken_at_its_joints(name, lines):
    assert canvas.in_two_lines(name, 22) == lines


def test_numbers_of_parts_add_up_to_those_of_the_whole(rng):
    y, replicas = rng.gamma(2.0, size=900), rng.gamma(2.0, size=(30, 900))
    whole = predictive_check.Totals.like(y, y)
    parts = predictive_check.Totals.like(y, y)
    whole.add(y, replicas, y, 900)
    for part in np.split(np.arange(900), [1, 300]):
        parts.add(y[part], replicas[:, part], y[part], len(part))
    every = np.vstack([y, replicas])
    for found in (whole, parts):
        assert found.count == found.num_rows == 900
        np.testing.assert_allclose(found.variance, every.var(axis=1))
        np.testing.assert_allclose(found.skewness, scipy.stats.skew(every, axis=1))
        np.testing.assert_allclose(found.kurtosis, scipy.stats.kurtosis(every, axis=1) + 3)
        np.testing.assert_allclose(found.rates[1], whole.rates[1])
    assert (np.diff(whole.rates[0]) > 0).all()


@pytest.mark.parametrize("count", [20, 400])
def test_one_data_set_more_is_beyond_the_band_once_in_a_hundred_times(count, rng):
    new, replicas = rng.normal(size=4000), rng.normal(size=(4000, count))
    ends = np.array([predictive_check.band(row) for row in replicas])
    outside = np.mean((new < ends[:, 0]) | (new > ends[:, 1]))
    assert 0.005 < outside < 0.02


def made(observed, replicas):
    return predictive_check.Replicated(
        observed, replicas, replicas.mean(axis=0), "y", observed.size, observed.size
    )


def test_the_check_sees_overdispersion(rng):
    replicas = rng.poisson(3.0, (100, 2000)).astype(float)
    svg, reading = predictive_check.check(
        "poisson", made(rng.poisson(3.0, 2000).astype(float), replicas)
    )
    assert "overdispersed" not in reading and "too few zeros" not in reading
    parsed(svg)
    mixed = rng.poisson(rng.gamma(0.7, 3.0 / 0.7, 2000)).astype(float)
    _, reading = predictive_check.check("poisson", made(mixed, replicas))
    assert "too few zeros" in reading and "overdispersed" in reading


def test_the_check_sees_tails_and_skewness(rng):
    replicas = rng.normal(size=(100, 2000))
    svg, reading = predictive_check.check("gaussian", made(rng.normal(size=2000), replicas))
    assert "agree with the model" in reading
    parsed(svg)
    assert (
        "heavier tails"
        in predictive_check.check("gaussian", made(rng.standard_t(3, 2000), replicas))[1]
    )
    skewed = rng.exponential(size=2000) - 1
    assert "longer upper tail" in predictive_check.check("gaussian", made(skewed, replicas))[1]


def test_the_check_sees_miscalibration(rng):
    p = rng.uniform(0.1, 0.9, 2000)
    replicas = (rng.random((100, 2000)) < p).astype(float)
    right = predictive_check.Replicated((rng.random(2000) < p) * 1.0, replicas, p, "y", 2000, 2000)
    svg, reading = predictive_check.check("bernoulli", right)
    assert "are calibrated" in reading
    parsed(svg)
    wrong = predictive_check.Replicated(
        (rng.random(2000) < p**2) * 1.0, replicas, p, "y", 2000, 2000
    )
    assert "not calibrated" in predictive_check.check("bernoulli", wrong)[1]


def test_every_family_has_a_check():
    from sgld.regression.families import FAMILIES

    rng = np.random.default_rng(0)
    for family in FAMILIES:
        y = rng.integers(0, 2, 300).astype(float)
        replicas = rng.integers(0, 2, (20, 300)).astype(float)
        svg, reading = predictive_check.check(family, made(y, replicas))
        assert svg.startswith("<svg") and reading
