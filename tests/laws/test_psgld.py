"""pSGLD's published figure on N(0, diag(.16, 1)): the part that has a closed form (Li et al. 2016)."""

import importlib.util
import sys
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import sgld
from sgld.testing import stationary_covariance

_path = Path(__file__).parents[2] / "benchmarks" / "psgld.py"
sys.path.append(str(_path.parent))
_spec = importlib.util.spec_from_file_location("benchmark_psgld", _path)
assert _spec is not None and _spec.loader is not None
psgld = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(psgld)
CURVATURE = np.diag([6.25, 1.0])


def test_sgld_without_gradient_noise_is_the_published_formula():
    curvature = np.diag(CURVATURE)
    for h in psgld.STEPS:
        exact = 1 / (curvature * (1 - h * curvature / 2))
        found = psgld.stationary_variances(np.ones(2), h, noise=0.0)
        np.testing.assert_allclose(found, exact, rtol=1e-12)


@pytest.mark.parametrize("adapted", [False, True])
@pytest.mark.usefixtures("x64")
def test_the_variances_are_those_of_the_samplers_own_steps(adapted):
    for h in psgld.STEPS:
        D = psgld.fixed_point(h) if adapted else np.ones(2)
        found = stationary_covariance(
            sgld.SGLD(None), CURVATURE, h, gradient_noise=psgld.NOISE_SD**2 * np.eye(2),
            preconditioner=sgld.Diagonal(jnp.asarray(D)),
        )  # fmt: skip
        exact = np.diag(psgld.stationary_variances(D, h))
        np.testing.assert_allclose(found, exact, rtol=1e-8, atol=1e-12)


def test_the_published_step_is_the_coefficient_of_the_gradient():
    ours = np.array([psgld.closed_form(h) for h in psgld.STEPS])
    np.testing.assert_allclose(ours, psgld.PUBLISHED_SGLD, rtol=0.08)
    halved = np.array([psgld.closed_form(h / 2) for h in psgld.STEPS])
    assert np.all(halved < 0.7 * np.array(psgld.PUBLISHED_SGLD))


def test_the_fixed_point_is_where_rmsprop_settles():
    h = float(psgld.STEPS[0])
    D = psgld.fixed_point(h)
    v = (1 / D - psgld.EPSILON) ** 2
    mean_square = np.diag(CURVATURE) ** 2 * psgld.stationary_variances(D, h) + psgld.NOISE_SD**2
    np.testing.assert_allclose(v, mean_square, rtol=1e-6)


def test_preconditioning_helps_at_every_published_step():
    for h in psgld.STEPS:
        settled = psgld.stationary_variances(psgld.fixed_point(h), h)
        assert psgld.covariance_error(np.diag(settled)) < 0.6 * psgld.closed_form(h)
