"""Exchanges leave the chains' joint law as it is, momenta included: exactly on Gaussians."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

import sgld
from sgld.errors import UsageError
from sgld.samplers.stationary import AffineLaw, Law

MOMENTUM = [sgld.BAOA(), sgld.BAOA(0.3), sgld.SGHMC(), sgld.SGHMC(0.4, 0.1), sgld.UBU()]
named = pytest.mark.parametrize("sampler", MOMENTUM, ids=repr)

J = np.array([[1.3, -0.4], [-0.4, 0.6]])
ROOT = np.array([[1.2, 0.0], [0.4, 0.8]])


def stationary(sampler, h, D):
    """Covariance of (theta, momentum) between steps, from the step's own Jacobian."""
    n, T = sampler.num_noises, 1.7
    kind = type(sampler.init(jnp.zeros(2)))

    def step(v):
        xi = v[4:] if n == 1 else v[4:].reshape(n, 2)
        grad = lambda q: -jnp.asarray(J) @ q  # noqa: E731
        new = sampler.step(kind(v[:2], v[2:4]), grad, h, xi, preconditioner=D, temperature=T)
        return jnp.concatenate(new)

    both = np.asarray(jax.jacfwd(step)(jnp.zeros(4 + 2 * n)))
    return scipy.linalg.solve_discrete_lyapunov(both[:, :4], both[:, 4:] @ both[:, 4:].T)


@named
@pytest.mark.parametrize("h", [0.02, 0.2])
def test_what_stays_of_the_momentum_is_independent_of_the_position(x64, sampler, h):
    D = sgld.Dense(jnp.asarray(ROOT @ ROOT.T), jnp.asarray(ROOT))
    S = stationary(sampler, h, D)
    kind = type(sampler.init(jnp.zeros(2)))

    def at_the_mode(v):
        return sampler.exchanged(kind(v[:2], v[2:]), v[:2], jnp.asarray(J) @ v[:2], h, D)[1]

    K = np.vstack([np.eye(2, 4), np.asarray(jax.jacfwd(at_the_mode)(jnp.zeros(4)))])
    scale = np.sqrt(np.outer(np.diag(S)[:2], np.diag(S)[2:]))
    before, after = (np.abs(C[:2, 2:] / scale).max() for C in (S, K @ S @ K.T))
    assert before > 1e-3
    # UBU's is known to leading order
    assert after < (0.3 * before if isinstance(sampler, sgld.UBU) else 1e-9)


class Own(NamedTuple):
    """A standard Gaussian's gradient, with the energy of the law that a chain by itself has."""

    variance: float

    def __call__(self, q):
        return -q

    def log_density(self, q):
        return -0.5 * jnp.sum(q**2) / self.variance


def cold_variance(sampler, variance, h, d=1, chains=2048, steps=300):
    """Of the cold chain among T = 1 and T = 3 (1.2 in many dimensions), and its standard error."""
    exchange = sgld.ReplicaExchange((1.0, 3.0 if d == 1 else 1.2), sampler)

    @jax.jit
    def run(start, warm, sample):
        state = jax.vmap(exchange.init)(jax.random.normal(start, (chains, d)))

        def step(state, key):
            xi = jax.random.normal(key, (chains, exchange.num_noises, d))
            state = jax.vmap(lambda s, x: exchange.step(s, Own(variance), h, x))(state, xi)
            return state, jnp.mean(state.position**2)

        state, _ = jax.lax.scan(step, state, jax.random.split(warm, 150))
        return jax.lax.scan(step, state, jax.random.split(sample, steps))[1]

    found = np.asarray(run(*jax.random.split(jax.random.key(0), 3)), np.float64)
    batches = found.reshape(10, -1).mean(1)
    return batches.mean(), batches.std(ddof=1) / np.sqrt(10)


@pytest.mark.parametrize("sampler", [sgld.BAOA(), sgld.BAOA(0.3), sgld.SGHMC(0.3)], ids=repr)
def test_the_cold_chain_keeps_the_variance_it_has_alone(sampler):
    """With bare positions exchanged: .80, 1.28 and .99 of it (SGHMC(.1): 29 times it)."""
    h, one = 0.5, np.ones((1, 1))
    alone = float(AffineLaw(Law(np.ones(1), one, 0 * one, one), sampler).covariance(h)[0, 0])
    found, se = cold_variance(sampler, alone, h)
    assert se < 0.01 * alone
    assert found == pytest.approx(alone, abs=4.5 * se + 1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("sampler", [sgld.UBU(), sgld.SGHMC()], ids=repr)
def test_the_cold_chain_keeps_the_variance_it_has_alone_too(sampler):
    h, one = 0.5, np.ones((1, 1))
    alone = float(AffineLaw(Law(np.ones(1), one, 0 * one, one), sampler).covariance(h)[0, 0])
    found, se = cold_variance(sampler, alone, h, chains=4096, steps=600)
    assert found == pytest.approx(alone, abs=4.5 * se + 0.008)


@pytest.mark.slow
def test_the_cold_chain_of_thermostats():
    """With bare positions exchanged: .90."""
    delta = 1 / 8
    alone = 1 - delta / 2  # where the thermostat fluctuates little, as it does in 64 dimensions
    found, se = cold_variance(sgld.SGNHT(), alone, delta**2, d=64, chains=512, steps=1000)
    assert found == pytest.approx(alone, abs=4.5 * se + 0.01)


class Silent:
    """Momentum, and no word about exchanges."""

    num_noises = 1

    def init(self, position):
        return sgld.BAOA().init(position)


def test_a_state_that_nobody_said_how_to_exchange_is_refused():
    with pytest.raises(
        UsageError, match=r"cannot exchange the chains of Silent.*sampler=sgld.SGLD"
    ):
        sgld.ReplicaExchange(sampler=Silent()).init(jnp.zeros(2))


ROWS = np.random.default_rng(3).normal(1.0, 1.0, (60, 1)).astype(np.float32)
LOCATION = sgld.Posterior(
    lambda q: -0.05 * jnp.sum(q**2), lambda q, x: -0.5 * jnp.sum((x - q) ** 2)
)


def exchanged(gradient, energy_noise=0.0, rows=ROWS, posterior=LOCATION, **given):
    return sgld.sample(
        posterior, rows, jnp.ones(1), sampler=sgld.ReplicaExchange((1.0, 3.0), energy_noise=energy_noise),
        gradient=gradient, num_draws=50, burn_in=10, progress=False,
        **{"batch_size": 6, "step_size": 1e-3, "order": "independent", **given},
    )  # fmt: skip


def test_noisy_energies_are_refused_with_their_variance():
    """K times the sum of n rows' differences: at q_1, q_2 the variance is K^2 n (q_1 - q_2)^2 Var(x),
    and E (q_1 - q_2)^2 is (1 + 3) / 60."""
    with pytest.raises(
        UsageError, match=r"by Minibatch's energies of 6 rows.*use gradient=sgld.Full"
    ) as error:
        exchanged(sgld.Minibatch())
    said = float(str(error.value).split("a variance of about ")[1].split(",")[0])
    assert said == pytest.approx(600 * 4 / 60 * ROWS.var(), rel=0.8)


@pytest.mark.slow
def test_exact_energies_of_any_estimator_are_not_refused():
    """All rows in one batch; control variates, which are exact where rows differ in a constant alone."""
    assert exchanged(sgld.Full()).num_draws == 50
    assert exchanged(sgld.Minibatch(), batch_size=60, order="reshuffle").num_draws == 50
    assert exchanged(sgld.ControlVariates()).num_draws == 50


def test_control_variates_far_from_a_gaussian_are_refused():
    rows = np.random.default_rng(5).normal(0.0, 30.0, (200, 1)).astype(np.float32)
    cauchy = sgld.Posterior(
        lambda q: -0.05 * jnp.sum(q**2), lambda q, x: -jnp.log1p(jnp.sum((x - q) ** 2))
    )
    with pytest.raises(UsageError, match="by ControlVariates's energies"):
        exchanged(sgld.ControlVariates(), rows=rows, posterior=cauchy)


def test_noise_that_is_accounted_for_runs_and_is_never_trusted():
    with pytest.raises(UsageError) as error:
        exchanged(sgld.Minibatch())
    found = float(str(error.value).split("a variance of about ")[1].split(",")[0])
    draws = exchanged(sgld.Minibatch(), found)
    assert draws.verdict.word != "trusted"


@pytest.mark.parametrize("wrong", [sgld.BAOA, "SGLD", sgld.ReplicaExchange()])
def test_what_is_no_sampler_of_one_chain_is_refused(wrong):
    with pytest.raises(UsageError, match="must be a sampler of one chain"):
        sgld.ReplicaExchange(sampler=wrong)
