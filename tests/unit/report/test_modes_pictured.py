"""Modes as pictures: valid SVG, masses in words, a direction that tells modes apart."""

import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

pytest.importorskip("matplotlib", reason="the report extra is not installed")

from sgld.interfaces.report import figures
from sgld.results.verdict import Modes

RNG = np.random.default_rng(0)
COVARIANCE = 1e-4 * np.array([[1.0, -1.0], [-1.0, 1.0]])
TWO = Modes(
    ("a", "b"), np.array([[0.0, 0.0], [4.0, 100.0]]), np.zeros(2), np.array([0.8, 0.2]), COVARIANCE
)


def texts(svg):
    return [
        "".join(e.itertext()) for e in ElementTree.fromstring(svg).iter() if e.tag.endswith("}text")
    ]


def test_bars_say_the_masses_and_their_errors():
    said = texts(figures.masses(TWO))
    assert "mode 1" in said and "0.8 ± 0.01" in said and "0.2 ± 0.01" in said
    free = Modes(TWO.names, TWO.position, TWO.log_density, TWO.mass)
    assert "0.8" in texts(figures.masses(free))


def test_the_direction_is_the_one_that_tells_the_modes_apart():
    """`b` differs by 100 and varies by 200: it is `a` that tells them apart."""
    at = RNG.integers(0, 2, 4000)
    draws = TWO.position[at] + RNG.standard_normal((4000, 2)) * [0.3, 20.0]
    x, places = figures.separating(TWO, draws, 0, 1)
    np.testing.assert_allclose(places, [0, 1], atol=1e-9)
    assert np.mean((x > 0.5) == (at == 1)) > 0.999
    svg = figures.along(x, np.full(4000, 1 / 4000), places, 0, 1)
    assert {"1", "2"} <= set(texts(svg)) and any("From mode 1" in t for t in texts(svg))


def test_modes_in_one_place_have_no_direction():
    same = Modes(("a",), np.zeros((2, 1)), np.zeros(2), np.full(2, 0.5))
    x, places = figures.separating(same, RNG.standard_normal((10, 1)), 0, 1)
    assert not x.any() and not places.any()
    assert figures.along(x, np.full(10, 0.1), places, 0, 1).startswith("<svg")
