"""A NumPyro model by rows is the model: densities, Jacobians and transforms against NumPyro's own."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer.util import log_density, potential_energy, unconstrain_fn

import sgld

RNG = np.random.default_rng(3)
N = 40
X = RNG.normal(size=(N, 3))
T = RNG.normal(size=N)
GROUP = RNG.integers(0, 4, N)
Y = X @ np.array([1.0, -1.0, 0.5]) + RNG.normal(size=N)
COUNTS = RNG.poisson(3.0, N)
SEEN = RNG.uniform(size=N) < 0.8

pytestmark = pytest.mark.filterwarnings("ignore:subsample_size does not match")


def linear(x, y=None):
    beta = numpyro.sample("beta", dist.Normal(0.0, 2.0).expand([x.shape[1]]).to_event(1))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1.0))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Normal(x @ beta, sigma), obs=y)


def explicit_size(num_rows, data):
    """The size is a number, the data a dict, the plate asks for subsamples."""
    beta = numpyro.sample("beta", dist.Normal(0.0, 2.0).expand([3]).to_event(1))
    with numpyro.plate("rows", num_rows, subsample_size=7) as rows:
        numpyro.sample("y", dist.StudentT(4.0, data["x"][rows] @ beta, 1.0), obs=data["y"][rows])


def subsample_primitive(x, y):
    beta = numpyro.sample("beta", dist.Normal(0.0, 2.0).expand([3]).to_event(1))
    with numpyro.plate("rows", x.shape[0], subsample_size=5):
        batch = numpyro.subsample(x, event_dim=1)
        numpyro.sample("y", dist.Normal(batch @ beta, 1.0), obs=numpyro.subsample(y, event_dim=0))


def grouped(group, t, y, num_groups):
    """A group plate is no row plate; a simplex and correlations beside."""
    weights = numpyro.sample("weights", dist.Dirichlet(jnp.ones(3)))
    chol = numpyro.sample("chol", dist.LKJCholesky(2, 2.0))
    scale = numpyro.sample("scale", dist.Exponential(1.0).expand([2]))
    with numpyro.plate("groups", num_groups):
        z = numpyro.sample(
            "z", dist.MultivariateNormal(jnp.zeros(2), scale_tril=scale[:, None] * chol)
        )
    with numpyro.plate("rows", len(t)):
        mean = z[group, 0] + z[group, 1] * t + weights[0]
        numpyro.sample("y", dist.Normal(mean, 1.0), obs=y)


def two_plates(x, counts, y):
    """Two plates over the same rows, the second scaled; an observed site outside."""
    rate = numpyro.sample("rate", dist.Gamma(2.0, 1.0))
    beta = numpyro.sample("beta", dist.Normal(0.0, 2.0).expand([3]).to_event(1))
    numpyro.factor("penalty", -0.5 * jnp.sum(beta**4))
    with numpyro.plate("counted", len(counts)):
        numpyro.sample("count", dist.Poisson(rate), obs=counts)
    with numpyro.handlers.scale(scale=0.3), numpyro.plate("measured", x.shape[0]):
        numpyro.sample("y", dist.Normal(x @ beta, rate), obs=y)


def masked(x, y, seen):
    low = numpyro.sample("low", dist.Normal(0.0, 1.0))
    high = numpyro.sample("high", dist.Uniform(low, low + 3.0))  # a support that depends on a site
    with numpyro.plate("rows", x.shape[0]), numpyro.handlers.mask(mask=seen):
        numpyro.sample("y", dist.Normal(x[:, 0] * low, jnp.exp(high)), obs=y)


def looking(x, y):
    """The priors look at all rows: at how many there are, and at their mean."""
    beta = numpyro.sample(
        "beta", dist.Normal(y.mean(), 1 / jnp.sqrt(len(x))).expand([3]).to_event(1)
    )
    with numpyro.plate("rows", len(x)):
        numpyro.sample("y", dist.Normal(x @ beta, 1.0), obs=y)


def two_outcomes(x, y):
    """The row plate is not the last one."""
    beta = numpyro.sample("beta", dist.Normal(0.0, 1.0).expand([3, 2]).to_event(2))
    with numpyro.plate("outcomes", 2, dim=-1), numpyro.plate("rows", x.shape[0], dim=-2):
        numpyro.sample("y", dist.Normal(x @ beta, 1.0), obs=y)


MODELS = [
    (linear, (X,), {"y": Y}),
    (explicit_size, (N, {"x": X, "y": Y}), {}),
    (subsample_primitive, (X, Y), {}),
    pytest.param(grouped, (GROUP, T, Y, 4), {}, marks=pytest.mark.slow),
    (two_plates, (X, COUNTS, Y), {}),
    (masked, (X, np.where(SEEN, Y, np.nan), SEEN), {}),
    (looking, (X, Y), {}),
    (two_outcomes, (X, np.stack([Y, -Y], 1)), {}),
]
NAMES = [getattr(m, "values", m)[0].__name__ for m in MODELS]


def whole(model):
    """The model whose plates hold all their members, for NumPyro's own functions."""

    def plates(site):
        return jnp.arange(site["args"][0]) if site["type"] == "plate" else None

    return numpyro.handlers.substitute(model, substitute_fn=plates)


def free_points(posterior, init, count=3):
    free = posterior.unconstrain(init)
    rng = np.random.default_rng(1)
    for _ in range(count):
        yield jax.tree.map(
            lambda leaf: jnp.asarray(leaf + rng.uniform(-1, 1, np.shape(leaf))), free
        )


@pytest.mark.parametrize(("model", "args", "kwargs"), MODELS, ids=NAMES)
def test_rows_and_prior_add_up_to_numpyro(x64, model, args, kwargs):
    posterior, init = sgld.from_numpyro(model, *args, **kwargs)
    assert posterior.log_likelihood is not None, posterior.notes
    for free in free_points(posterior, init):
        position = posterior.constrain(free)
        expected, _ = log_density(whole(model), args, kwargs, position)
        rows = jax.tree.map(jnp.asarray, posterior.data)
        found = posterior.log_prior(position) + posterior.log_likelihood_free(free, rows)
        np.testing.assert_allclose(found, expected, rtol=1e-10)
        # the Jacobian once: NumPyro's potential energy of free numbers has it
        potential = potential_energy(whole(model), args, kwargs, free)
        found = posterior.log_prior_free(free) + posterior.log_likelihood_free(free, rows)
        np.testing.assert_allclose(found, -potential, rtol=1e-10)


@pytest.mark.parametrize(("model", "args", "kwargs"), MODELS, ids=NAMES)
def test_the_transforms_are_numpyros(x64, model, args, kwargs):
    posterior, init = sgld.from_numpyro(model, *args, **kwargs)
    (free,) = free_points(posterior, init, 1)
    position = posterior.constrain(free)
    expected = unconstrain_fn(whole(numpyro.handlers.seed(model, 0)), args, kwargs, position)
    for name, value in posterior.unconstrain(position).items():
        np.testing.assert_allclose(value, expected[name], atol=1e-9)
        np.testing.assert_allclose(value, free[name], atol=1e-9)


@pytest.mark.slow
def test_a_deterministic_site_beside_a_cholesky_factor_is_reported_in_double():
    """`output=` is taken in double precision, and NumPyro's triangle of single ones was not."""

    def model(y):
        L = numpyro.sample("L", dist.LKJCholesky(2, 1.0))
        numpyro.deterministic("r", L[1, 0])
        m = numpyro.sample("m", dist.Normal(0.0, 1.0))
        with numpyro.plate("rows", len(y)):
            numpyro.sample("y", dist.Normal(m, 1.0), obs=y)

    posterior, init = sgld.from_numpyro(model, np.zeros(1, np.float32))
    draws = sgld.sample(
        posterior,
        None,
        init,
        step_size=1e-3,
        num_draws=4,
        burn_in=0,
        thin=1,
        num_chains=2,
        progress=False,
    )
    position = draws.position
    np.testing.assert_allclose(position["r"], position["L"][..., 1, 0])


def test_a_model_may_close_over_arrays_of_double_precision():
    """JAX keeps an array's first precision: rows are compared in double, and drawn in single."""
    rng = np.random.default_rng(4)
    x, places, weights = rng.normal(size=(300, 2)), np.array([0.5, -0.5]), np.array([2.0, 3.0])
    y = x @ [1.0, 2.0] + rng.normal(size=300)

    def model(x, y):
        b = numpyro.sample("b", dist.Normal(places, weights).to_event(1))
        with numpyro.plate("rows", len(y)):
            numpyro.sample("y", dist.Normal(x @ b, 1.0), obs=y)

    draws = sgld.sample(model, (x, y), progress=False, num_draws=100)
    precision = x.T @ x + np.diag(weights**-2)
    mean = np.linalg.solve(precision, x.T @ y + places / weights**2)
    sd = np.sqrt(np.diag(np.linalg.inv(precision)))
    assert np.all(np.abs(draws.mean()["b"] - mean) < 0.3 * sd)


def test_a_start_is_found_where_the_median_of_the_prior_is_not_finite():
    """As for NumPyro: uniform in [-2, 2] on the unconstrained scale."""
    y = np.random.default_rng(0).normal(size=50)

    def model(y):
        variance = numpyro.sample("variance", dist.InverseGamma(0.0005, 0.000005))
        with numpyro.plate("rows", 50):
            numpyro.sample("y", dist.Normal(0.0, jnp.sqrt(variance)), obs=y)

    posterior, init = sgld.from_numpyro(model, y)
    assert np.exp(-2) <= init["variance"] <= np.exp(2)
    assert np.isfinite(float(posterior.log_prior(init)))
