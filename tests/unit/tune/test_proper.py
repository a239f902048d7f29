"""More columns than rows and a free scale: refused where improper, and only there."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.distributions import constraints

import sgld
from sgld.approximation.mode import gaussian_at_mode
from sgld.approximation.propriety import check_resolved
from sgld.errors import UsageError
from sgld.inference.tuning.survey import survey_posterior
from sgld.model.prepare import prepare

ROWS = 10


def wide(columns, precision):
    """y = X b + s e, b normal with this precision, s half normal."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((ROWS, columns)).astype(np.float32)
    y = (X[:, 0] + 0.5 * rng.standard_normal(ROWS)).astype(np.float32)
    posterior = sgld.Posterior(
        lambda q: -0.5 * (q["s"] ** 2 + precision * jnp.sum(q["b"] ** 2)),
        lambda q, row: -0.5 * ((row[1] - row[0] @ q["b"]) / q["s"]) ** 2 - jnp.log(q["s"]),
        constraints={"b": None, "s": constraints.positive},
    )
    return prepare(posterior, (X, y), {"b": jnp.zeros(columns), "s": jnp.ones(())})


@pytest.mark.parametrize("columns", [11, 12, 20])
def test_more_columns_than_rows_with_a_flat_prior_are_refused(columns):
    with pytest.raises(UsageError, match=r"improper.* more columns than rows.*proper prior"):
        survey_posterior(wide(columns, 0.0), 0, 1.0, by_hand=False)


@pytest.mark.parametrize(
    ("columns", "precision"), [(10, 0.0), (10, 1.0), (12, 1.0), (12, 1e-6), (20, 1e-8)]
)
def test_what_is_proper_is_not(columns, precision):
    """With as many columns as rows and a flat prior the scale's own prior is its posterior."""
    survey_posterior(wide(columns, precision), 0, 1.0, by_hand=False)


@pytest.mark.parametrize(("sd", "resolved"), [(0.05, False), (0.1, True)])
def test_an_sd_is_resolved_by_two_numbers_or_more(sd, resolved):
    """Around 2^18 numbers of float32 are 1/32 apart."""
    problem = prepare(
        sgld.Posterior(lambda t: -0.5 * ((t - 2**18) / sd) ** 2), None, np.float32(2**18)
    )
    laplace = gaussian_at_mode(problem).gaussian
    if resolved:
        check_resolved(problem, laplace, 1.0)
    else:
        with pytest.raises(UsageError, match=r"sd of 'x' is about 0.05,.* are 0\.031 apart"):
            check_resolved(problem, laplace, 1.0)


def test_a_spike_at_the_mode_hides_no_other_parameter():
    """One whose curvature at the start clears it, and a coarser one beside it that nothing clears."""
    at = np.array([2**18, 2**18], np.float32)

    def log_density(t):
        spike = -0.5 * jnp.where(jnp.abs(t[0] - at[0]) < 4, 1e6, 1e-2) * (t[0] - at[0]) ** 2
        return spike - 0.5 * ((t[1] - at[1]) / 0.05) ** 2

    problem = prepare(sgld.Posterior(log_density), None, at + np.float32([64, 0]))
    laplace = replace(gaussian_at_mode(problem).gaussian, center=at.astype(float))
    laplace = replace(laplace, curvature=np.diag([1e6, 400.0]))
    with pytest.raises(UsageError, match=r"sd of 'x\[1\]' is about 0.05"):
        check_resolved(problem, laplace, 1.0)
