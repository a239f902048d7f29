"""p(theta | data)^(1/T) on the constrained scale: the Jacobian of the free coordinates is not tempered.

    Gamma(a, b)^(1/T)        is Gamma((a - 1) / T + 1, b / T)
    half-normal(s)^(1/T)     is half-normal(s sqrt(T))
    Beta(a, b)^(1/T)         is Beta((a - 1) / T + 1, (b - 1) / T + 1)

where tempering the law of log theta would give Gamma(a / T, b / T).
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.distributions import constraints
from scipy import stats

import sgld
from sgld.gallery import handout
from sgld.model import sums
from sgld.model.prepare import prepare
from sgld.samplers.gradients.full import Estimate

A, B = 3.0, 2.0
GAMMA = sgld.Posterior(lambda s: (A - 1) * jnp.log(s) - B * s, constraints=constraints.positive)
HALF_NORMAL = sgld.Posterior(lambda s: -0.5 * s**2, constraints=constraints.positive)
BETA = sgld.Posterior(
    lambda p: 3 * jnp.log(p) + 1 * jnp.log1p(-p), constraints=constraints.unit_interval
)
LAWS = {
    "gamma": (GAMMA, 1.0, lambda T: stats.gamma((A - 1) / T + 1, scale=T / B)),
    "half-normal": (HALF_NORMAL, 1.0, lambda T: stats.halfnorm(scale=np.sqrt(T))),
    "beta": (BETA, 0.5, lambda T: stats.beta(3 / T + 1, 1 / T + 1)),
}


def agrees(draws, law, rtol=0.06):
    """Mean within .1 sd, sd within `rtol`, both tails' quantiles within .15 sd."""
    values, sd = draws.flat()[0], law.std()
    assert abs(values.mean() - law.mean()) < 0.1 * sd
    assert values.std() == pytest.approx(sd, rel=rtol)
    for q in (0.05, 0.5, 0.95):
        assert abs(np.quantile(values, q) - law.ppf(q)) < 0.15 * sd, q


@pytest.mark.parametrize("T", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("name", LAWS)
def test_the_target_is_the_constrained_density_with_the_jacobian_whole(x64, name, T):
    """On a grid: exp(target / T) is p^(1/T) |J|, up to a constant; and so is its gradient."""
    posterior, start, law = LAWS[name]
    problem = prepare(posterior, None, jnp.float64(start)).at_temperature(jnp.float64(T))
    zs = jnp.linspace(-1.5, 1.0, 7, dtype=jnp.float64)[:, None]
    theta = np.array([float(problem.target.position(z)) for z in zs])
    jacobian = np.array([float(jax.grad(problem.target.position)(z)[0]) for z in zs])
    values = np.array([float(sums.log_density(problem, z)) for z in zs])
    expected = law(T).logpdf(theta) + np.log(jacobian)
    np.testing.assert_allclose(np.diff(values / T), np.diff(expected), rtol=1e-9)


@pytest.mark.parametrize(
    ("name", "T"), [("gamma", 0.1), ("gamma", 10.0), ("half-normal", 10.0), ("beta", 0.1)]
)
def test_everything_left_to_the_library(name, T):
    posterior, start, law = LAWS[name]
    draws = sgld.sample(posterior, None, start, temperature=T, progress=False)
    agrees(draws, law(T), 0.1)
    assert draws.verdict.word == ("trusted" if T < 1 else "unknown"), draws.verdict


def test_the_shape_of_a_law_that_only_widens_is_the_same_at_every_temperature():
    """A half-normal stays one: its curvature in the free coordinate, and nu, do not change with T."""
    known = [
        sgld.sample(
            HALF_NORMAL, None, 1.0, step_size=0.1, temperature=T, num_draws=20, progress=False
        ).plan.known
        for T in (1.0, 4.0)
    ]
    assert known[1].nu == pytest.approx(known[0].nu, rel=1e-3)
    curvatures = [float(k.gaussian.curvature[0, 0]) for k in known]
    assert curvatures[1] == pytest.approx(
        4 * curvatures[0], rel=1e-3
    )  # of the target, T times the law's


@pytest.mark.parametrize("T", [0.1, 10.0])
@pytest.mark.parametrize("sampler", [sgld.SGLD(), sgld.BAOA(), sgld.UBU()], ids=repr)
def test_every_sampler_by_a_step_of_ones_own(sampler, T):
    """A small step: .03 of the inverse curvature of the target, which is T shape at its mode."""
    shape = (A - 1) / T + 1
    h = 0.03 / (T * shape)
    draws = sgld.sample(
        GAMMA, None, (A - 1) / B, sampler=sampler, step_size=h, temperature=T, thin=40, burn_in=500,
        num_draws=4000, progress=False,
    )  # fmt: skip
    agrees(draws, stats.gamma(shape, scale=T / B))


def test_at_temperature_0_the_density_of_the_constrained_scale_is_climbed():
    draws = sgld.sample(
        GAMMA, None, 3.0, step_size=0.1, temperature=0.0, num_draws=50, burn_in=500, progress=False
    )
    np.testing.assert_allclose(draws.position[:, -1], (A - 1) / B, rtol=1e-4)
    mode = sgld.find_map(GAMMA, None, 3.0)  # on the free scale: of the density of log theta
    assert float(mode.position) == pytest.approx(A / B, rel=1e-3)


def test_a_schedule_takes_the_target_along():
    """T = 1 at the first step, which is what is tuned for, and .2 ever after: the law is that at .2."""
    T = lambda t: jnp.where(t < 1, 1.0, 0.2)  # noqa: E731
    draws = sgld.sample(
        GAMMA, None, 1.0, step_size=0.02, temperature=T, thin=10, burn_in=0, num_draws=600, progress=False
    )  # fmt: skip
    law, values = stats.gamma((A - 1) / 0.2 + 1, scale=0.2 / B), draws.position[:, 50:]
    assert abs(values.mean() - law.mean()) < 0.25 * law.std()  # by a target at T = 1 1.2 sds off
    assert values.std() == pytest.approx(law.std(), rel=0.2)


def linear(T):
    """A made-up target whose slope is 3 + T, and whose energies at T = 0 are far from those at others."""
    return Estimate(lambda q: (3 + T) * jnp.sum(q) - 100.0 * T * jnp.sum(q**2), tempered=linear)


def test_a_step_of_replicas_by_hand(x64):
    exchange, T, h = sgld.ReplicaExchange((1.0, 2.0), sgld.SGLD(None)), 0.5, 1e-3
    state = exchange.init(jnp.zeros(1))
    q = jnp.array([[0.0], [1.0]])
    state = state._replace(replicas=state.replicas._replace(position=q))
    noise = jnp.zeros((exchange.num_noises, 1)).at[0].set(2.0)  # log Phi(2) = -.023
    new = exchange.step(state, linear(T), jnp.float64(h), noise, temperature=jnp.float64(T))
    # U = -3 q: the hot one's is lower, they swap; then each climbs its own slope 3 + T - 200 T q
    moved = [1 + h * (3 + 0.5 - 200 * 0.5 * 1), 0 + h * (3 + 1.0)]
    np.testing.assert_allclose(new.replicas.position[:, 0], moved, rtol=1e-12)


@pytest.mark.parametrize("sampler", [sgld.SGLD(None), sgld.BAOA()], ids=repr)
def test_replicas_have_targets_of_their_own_and_swap_without_the_jacobian(sampler):
    """The cold chain's law is that of its own temperature, whatever the ladder above it."""
    exchange = sgld.ReplicaExchange((1.0, 4.0, 16.0), sampler)
    for T in (0.5, 1.0):
        law = stats.gamma((A - 1) / T + 1, scale=T / B)
        draws = sgld.sample(
            GAMMA, None, 1.0, sampler=exchange, step_size=0.01, temperature=T, thin=10,
            burn_in=1000, num_draws=10_000, progress=False,
        )  # fmt: skip
        agrees(draws, law, 0.05)


ROWS = np.random.default_rng(5).exponential(0.5, 400).astype(np.float32)
RATE = sgld.Posterior(
    lambda r: -r, lambda r, x: jnp.log(r) - r * x, constraints=constraints.positive
)


@pytest.mark.parametrize("T", [20.0])
@pytest.mark.parametrize("gradient", [sgld.Full(), sgld.ControlVariates(), sgld.SVRG(), sgld.SAGA()], ids=repr)  # fmt: skip
def test_every_estimator_adds_the_same_jacobian(gradient, T):
    law = stats.gamma(400 / T + 1, scale=T / (1 + ROWS.sum()))
    draws = sgld.sample(
        RATE, ROWS, 2.0, gradient=gradient, batch_size=400, order="independent",
        step_size=0.1 / 400, temperature=T, thin=10, burn_in=300, num_draws=3000, progress=False,
    )  # fmt: skip
    agrees(draws, law, 0.07)


@pytest.mark.parametrize("T", [pytest.param(0.01, marks=pytest.mark.slow), 10.0])
def test_the_handouts_regression_with_its_variance_constrained(T):
    """X3's data: p(beta, sigma^2 | data)^(1/T) is normal-inverse-gamma, phi' + p/2 + 1 = (phi + p/2 + 1) / T."""
    data, law = handout.problem()
    own = sgld.gallery.handout.nig(2)
    inside = own.model()

    def log_prior(position):  # of sigma^2: without the Jacobian of log sigma^2
        free = {"beta": position["beta"], "log_sigma2": jnp.log(position["sigma2"])}
        return inside.log_prior(free) - free["log_sigma2"]

    def log_likelihood(position, datum):
        free = {"beta": position["beta"], "log_sigma2": jnp.log(position["sigma2"])}
        return inside.log_likelihood(free, datum)

    posterior = sgld.Posterior(
        log_prior, log_likelihood, constraints={"beta": None, "sigma2": constraints.positive}
    )
    start = {"beta": jnp.zeros(2), "sigma2": jnp.float32(1.0)}
    draws = sgld.sample(posterior, data, start, temperature=T, progress=False)
    assert draws.verdict.word == "trusted", draws.verdict
    p = 2
    phi, psi, V = (law.phi + p / 2 + 1) / T - p / 2 - 1, law.psi / T, T * law.V
    scale = np.sqrt(psi / phi * np.diag(V))
    sigma2 = np.asarray(draws.position["sigma2"], float)
    beta = np.asarray(draws.position["beta"], float)
    exact = stats.invgamma(phi, scale=psi)
    assert sigma2.std() == pytest.approx(exact.std(), rel=0.06)
    assert abs(sigma2.mean() - exact.mean()) < 0.1 * exact.std()
    for j in range(p):
        marginal = stats.t(2 * phi, law.mu[j], scale[j])
        assert beta[..., j].std() == pytest.approx(marginal.std(), rel=0.06)
