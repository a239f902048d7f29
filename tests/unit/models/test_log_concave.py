"""Posteriors that say they are log-concave are, and no other mode of theirs is looked for."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pandas
import pytest
from jax.tree_util import Partial
from numpyro.distributions import constraints

import sgld
from sgld.inference.tuning import survey
from sgld.interfaces.sklearn_models import Form, Rows, model_of
from sgld.model import sums
from sgld.model.prepare import prepare
from sgld.regression.formula import FormulaModel
from sgld.regression.priors import parse_prior, student_t

rng = np.random.default_rng(5)
ROWS = pandas.DataFrame({"a": rng.normal(size=60), "b": rng.normal(size=60)})
ROWS["n"] = rng.integers(1, 9, 60)
OUTCOMES = {
    "bernoulli": rng.integers(0, 2, 60), "binomial": rng.binomial(ROWS["n"], 0.4),
    "poisson": rng.poisson(2.0, 60), "categorical": rng.integers(0, 3, 60).astype(str),
    "negative-binomial": rng.poisson(rng.gamma(2.0, 1.0, 60)), "gaussian": rng.normal(size=60),
    "gamma": rng.gamma(2.0, 1.0, 60), "student-t": rng.standard_t(3, 60),
    "lognormal": np.exp(rng.normal(size=60)),
}  # fmt: skip
CONCAVE = ("bernoulli", "binomial", "poisson", "categorical")


def model(family, prior=None):
    given = {"trials": "n"} if family == "binomial" else {}
    table = ROWS.assign(y=OUTCOMES[family])
    return FormulaModel.build(table, "y ~ a + b", family=family, prior=prior, **given)


@pytest.mark.parametrize(
    ("family", "prior"),
    [*itertools.product(OUTCOMES, (None, "normal(0, 2)", "laplace(0, 1)", "student_t(3, 0, 1)"))],
)
def test_families_and_priors_that_say_so_are_concave_wherever_they_are_looked_at(family, prior):
    built = model(family, prior)
    said = built.posterior.log_concave
    assert said == (family in CONCAVE and prior != "student_t(3, 0, 1)")
    problem = prepare(built.posterior, built.data, None)
    for scale in (0.3, 1.0, 3.0) if said else ():
        z = problem.array(scale * rng.standard_normal(problem.dimension))
        assert np.linalg.eigvalsh(np.asarray(sums.curvature(problem, z))).min() > -1e-3


def test_a_function_bound_to_one_that_is_not_makes_it_none():
    def prior(density, theta):
        return density(theta)

    prior.log_concave = True
    hollow = lambda t: jnp.log(jnp.sum(t**2))  # noqa: E731
    assert not sgld.Posterior(Partial(prior, Partial(hollow))).log_concave
    hollow.log_concave = True
    assert sgld.Posterior(Partial(prior, Partial(hollow))).log_concave
    assert not sgld.Posterior(prior, lambda t, x: -(t**2)).log_concave
    assert not sgld.Posterior(lambda t: -(t**2)).log_concave


def test_constraints_come_before_what_a_function_says():
    def prior(theta):
        return -theta

    prior.log_concave = True
    assert not sgld.Posterior(prior, constraints=constraints.positive).log_concave


@pytest.mark.parametrize("kind", ["bernoulli", "categorical", "gaussian"])
@pytest.mark.parametrize("hidden", [(), (4,)])
def test_linear_classifiers_say_so_and_networks_of_the_same_parts_do_not(kind, hidden):
    y = rng.integers(0, 2, 60).astype(float)
    labels = ("u", "v") if kind == "categorical" else ()
    rows = Rows(ROWS[["a", "b"]].to_numpy(), y, np.ones(60))
    for density in (None, parse_prior("normal(0, 1)"), parse_prior("student_t(3, 0, 1)")):
        form = Form(kind, ("a", "b"), labels=labels, hidden=hidden, density=density)
        heavy = density is not None and density.func is student_t
        linear = not hidden and kind != "gaussian"
        assert model_of(rows, form, 0).posterior.log_concave == (linear and not heavy)


def test_nothing_is_looked_for_where_there_can_be_nothing(monkeypatch):
    looked = []
    monkeypatch.setattr(
        survey, "check_tails_and_modes", lambda *a, **how: looked.append(a) or 1 / 0
    )
    fit = sgld.fit(
        ROWS.assign(y=OUTCOMES["poisson"]), "y ~ a + b", family="poisson", progress=False
    )
    assert not looked
    assert fit.verdict.word == "trusted"
    with pytest.raises(ZeroDivisionError):
        sgld.sample(
            sgld.Posterior(lambda t: -jnp.sum(t**2)), None, jax.numpy.zeros(2), progress=False
        )
