"""The posterior: sums over rows, constraints counted once, numbers that recompile nothing."""

from collections import OrderedDict

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.tree_util import Partial

import sgld
from sgld.core.pytrees import Layout
from sgld.errors import UsageError
from sgld.model.problem import Target


class Log:
    """sigma = exp(phi)."""

    def forward(self, free):
        return jnp.exp(free)

    def inverse(self, position):
        return jnp.log(position)

    def log_det(self, free):
        return free


jax.tree_util.register_static(Log)


def test_the_jacobian_is_counted_once_and_belongs_to_the_prior():
    posterior = sgld.Posterior(
        lambda s: -s, lambda s, x: -jnp.log(s) - 0.5 * (x / s) ** 2, transform=Log()
    )
    x, phi = jnp.array([0.5, -1.0, 2.0]), jnp.float32(0.3)
    s = np.exp(0.3)
    assert posterior.log_prior_free(phi) == pytest.approx(-s + 0.3, rel=1e-6)
    likelihood = np.sum(-np.log(s) - 0.5 * (np.asarray(x) / s) ** 2)
    assert posterior.log_likelihood_free(phi, x) == pytest.approx(likelihood, rel=1e-5)
    mode = sgld.find_map(sgld.Posterior(lambda s: 3 * jnp.log(s) - s, transform=Log()), None, 1.0)
    assert float(mode.position) == pytest.approx(4.0, rel=1e-4)  # of s^4 e^-s, the free density


def test_rows_of_weight_0_do_not_count():
    posterior = sgld.Posterior(lambda t: 0.0 * t, lambda t, x: t * x)
    rows = jnp.array([1.0, 2.0, 5.0])
    value = posterior.log_likelihood_free(jnp.float32(2.0), rows, jnp.array([1.0, 1.0, 0.0]))
    assert float(value) == 6.0


def test_numbers_are_leaves():
    make = lambda scale: sgld.Posterior(Partial(lambda s, t: -s * t**2, jnp.float32(scale)))  # noqa: E731
    assert jax.tree.leaves(make(2.0)) == [2.0]
    compiled = jax.jit(lambda p, t: p.log_prior(t))
    f = make(1.0).log_prior.func
    for scale in (1.0, 3.0):
        posterior = sgld.Posterior(Partial(f, jnp.float32(scale)))
        assert float(compiled(posterior, 2.0)) == -4.0 * scale
    assert compiled._cache_size() == 1


def test_output_is_what_draws_report():
    posterior = sgld.Posterior(lambda t: -0.5 * t**2, output=lambda t: {"twice": 2 * t})
    target = Target(posterior, Layout.of(jnp.float32(0.0)))
    assert float(target.reported(jnp.array([1.5]))["twice"]) == 3.0
    assert repr(posterior) == "Posterior(log density)"


def test_a_start_outside_its_constraint_is_named_before_the_first_step(tmp_path):
    from numpyro.distributions import constraints

    posterior = sgld.Posterior(
        lambda p: -jnp.sum(p["rate"]) - p["share"],
        constraints={"rate": constraints.positive, "share": constraints.unit_interval},
    )
    for init, message in (
        ({"rate": jnp.array([1.0, 2.0, -3.0]), "share": 0.5}, r"'rate\[2\]' is -3\.0, .* Positive"),
        ({"rate": jnp.ones(3), "share": 1.5}, r"'share' is 1\.5, outside its constraint UnitInt"),
    ):
        with pytest.raises(UsageError, match=message) as error:
            sgld.sample(posterior, None, init, path=tmp_path / "run", progress=False)
        assert str(error.value).endswith("choose a start inside it.")
        assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", ["sphere", "nonnegative_integer", "boolean"])
def test_a_constraint_without_free_numbers_is_told(name):
    from numpyro.distributions import constraints

    with pytest.raises(UsageError, match="no bijection from free numbers"):
        sgld.Posterior(lambda p: 0.0, constraints={"a": getattr(constraints, name)})


def test_constraints_hold_by_name():
    from numpyro.distributions import constraints

    one = jnp.float32(1.0)
    both = {"alpha": one, "scale": one}

    def free(given, position):
        return sgld.Posterior(lambda p: 0.0, constraints=given).unconstrain(position)

    positive = {"scale": constraints.positive, "alpha": None}
    assert free(positive, both) == {"alpha": 1.0, "scale": 0.0}
    ordered = OrderedDict(scale=one, alpha=one)  # another order of leaves than a dict's
    assert free(positive, ordered) == {"scale": 0.0, "alpha": 1.0}
    part = {"scale": constraints.positive, "alpha": constraints.real}
    assert free(part, {"scale": [one, one], "alpha": one}) == {"scale": [0.0, 0.0], "alpha": 1.0}
    assert free(constraints.positive, both) == {"alpha": 0.0, "scale": 0.0}
    assert free(constraints.positive, one) == 0.0
    assert free({**positive, "none": None}, {**both, "none": None})["scale"] == 0.0
    for wrong, said in (
        ({"sigma": constraints.positive, "zeta": None}, "no 'sigma', its leaves are alpha, scale."),
        ({"scal": constraints.positive, "alpha": None}, "no 'scal', .* Did you mean 'scale'"),
        ({**positive, "extra": None}, "no 'extra'"),
        ({"scale": constraints.positive}, r"name 1 leaf \(scale\); .* also has 'alpha'"),
        ([constraints.positive, None], "no '.0.'"),
    ):
        with pytest.raises(UsageError, match=said):
            free(wrong, both)


def test_a_constraint_of_no_parameter_is_named_before_the_first_step(tmp_path):
    from numpyro.distributions import constraints

    posterior = sgld.Posterior(
        lambda p: -p["alpha"] - p["scale"],
        constraints={"sigma": constraints.positive, "zeta": None},
    )
    with pytest.raises(UsageError, match="the position has no 'sigma'"):
        sgld.sample(
            posterior, None, {"alpha": 1.0, "scale": 1.0}, path=tmp_path / "run", progress=False
        )
    assert not (tmp_path / "run").exists()


def test_refusals():
    with pytest.raises(UsageError, match="must be a function"):
        sgld.Posterior(3.0)
    with pytest.raises(UsageError, match=r"constraints\.positive"):
        sgld.Posterior(lambda t: t, constraints="positive")
