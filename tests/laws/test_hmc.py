"""Hamiltonian Monte Carlo: BlackJAX's trajectory, the law left as it is, any step and any length."""

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

import sgld
from sgld.samplers.gradients.full import Estimate
from sgld.samplers.hmc import HMC, LENGTH_BITS, At, State, propose

FACTOR = np.array([[1.0, 0.0, 0.0], [0.8, 0.6, 0.0], [0.2, -0.5, 2.0]])
D = sgld.Dense(jnp.asarray(FACTOR @ FACTOR.T, jnp.float32), jnp.asarray(FACTOR, jnp.float32))


def ring(q):
    return -0.5 * (jnp.sum(q**2) - 2.0) ** 2 - 0.1 * q[0]


@pytest.mark.parametrize("count", [1, 2, 7])
def test_a_trajectory_is_blackjaxs_in_the_same_metric(count):
    """Its momenta are F^-T of ours, its inverse mass matrix F F^T."""
    q, p = jnp.array([0.7, -0.4, 1.1]), jnp.array([0.3, -1.2, 0.5])
    found = propose(Estimate(ring), At.start(q), p, 0.15, count, D)
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        metric = blackjax.mcmc.metrics.default_metric(jnp.asarray(D.matrix))
        step = blackjax.mcmc.integrators.velocity_verlet(ring, metric.kinetic_energy)
        state = blackjax.mcmc.integrators.new_integrator_state(
            ring, q, jnp.linalg.solve(jnp.asarray(FACTOR.T, jnp.float32), p)
        )
        energy = lambda s: -s.logdensity + metric.kinetic_energy(s.momentum)  # noqa: E731
        first = energy(state)
        for _ in range(count):
            state = step(state, 0.15)
        ratio = first - energy(state)
    end = found.end
    np.testing.assert_allclose(end.position, state.position, rtol=2e-5)
    np.testing.assert_allclose(found.momentum, FACTOR.T @ state.momentum, rtol=1e-4, atol=1e-5)
    assert float(found.log_ratio) == pytest.approx(float(ratio), abs=1e-5)
    assert float(found.before) == pytest.approx(float(ring(q)))
    assert float(end.log_density) == pytest.approx(float(ring(end.position)))
    np.testing.assert_allclose(end.gradient, jax.grad(ring)(end.position), rtol=1e-6)
    known = propose(
        Estimate(ring), At(q, ring(q), jax.grad(ring)(q), jnp.ones(())), p, 0.15, count, D
    )
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), known, found)


GRID, LEVELS = 240, 24


def midpoints(count):
    return (np.arange(count) + 0.5) / count


@pytest.mark.parametrize("T", [1.0, 2.0])
@pytest.mark.parametrize(("delta", "leapfrogs"), [(0.4, 6), (1.1, 1), (1.4, 5)])
def test_the_law_is_left_as_it_is(x64, delta, leapfrogs, T):
    """One step from all of a skewed law, by quadrature over position, momentum and the uniform number.

    p(x)^(1/T) of x = log of a Gamma(a, 1) is that of T^{-1} a in the exponent: x = log(T g), g a Gamma(a / T).
    """
    shape = 2.0
    start = np.log(T * stats.gamma(shape / T).ppf(midpoints(GRID)))
    xi, level = stats.norm.ppf(midpoints(GRID)), stats.norm.ppf(midpoints(LEVELS))
    q, p, u = (a.ravel() for a in np.meshgrid(start, xi, level, indexing="ij"))
    sampler = HMC(leapfrogs)
    grad = Estimate(lambda q: jnp.sum(shape * q - jnp.exp(q)))

    def one(q, p, u):
        state = sampler.init(q[None])._replace(count=jnp.int32(2))
        noise = jnp.stack([p, u])[:, None]
        return sampler.step(state, grad, delta**2, noise, temperature=T)

    new = jax.jit(jax.vmap(one))(*map(jnp.asarray, (q, p, u)))
    moved = np.asarray(new.position[:, 0])
    refused = np.mean(moved == q)
    assert 0.005 < refused < 0.9  # there is something to refuse, or nothing is tested
    sd = start.std()
    assert moved.mean() == pytest.approx(start.mean(), abs=0.006 * sd)
    assert moved.std() == pytest.approx(sd, rel=0.006)
    for level in (0.05, 0.5, 0.95):
        exact = np.log(T * stats.gamma(shape / T).ppf(level))
        assert np.quantile(moved, level) == pytest.approx(exact, abs=0.06 * sd)


def test_the_moments_of_a_skewed_target_over_many_steps():
    sampler, grad = HMC(5.0), Estimate(lambda q: jnp.sum(2 * q - jnp.exp(q)))
    chains, steps = 256, 400

    def step(state, key):
        noise = jax.random.normal(key, (chains, 2, 3))
        move = lambda s, xi: sampler.step(s, grad, 0.5, xi)  # noqa: E731
        state = jax.vmap(move)(state, noise)
        return state, state.position

    start = jax.vmap(sampler.init)(jnp.zeros((chains, 3)))
    keys = jax.random.split(jax.random.key(0), steps)
    state, path = jax.lax.scan(step, start, keys)
    x = np.asarray(path[50:]).reshape(-1)
    assert x.mean() == pytest.approx(special.digamma(2.0), abs=0.01)
    assert x.std() == pytest.approx(np.sqrt(special.polygamma(1, 2.0)), rel=0.01)
    # U = e^x - 2 x of three: Var(g) + 4 Var(log g) - 4 Cov(g, log g) = 2 + 4 psi'(2) - 4 each
    variance = np.mean(np.asarray(state.squares) / steps) + np.var(np.asarray(state.mean))
    assert variance == pytest.approx(3 * (4 * special.polygamma(1, 2.0) - 2), rel=0.1)
    assert int(state.divergences.sum()) == 0


def test_a_trajectory_starts_from_what_the_last_one_found():
    """The same end as with everything taken anew at its start, after refusals too."""
    sampler, grad, chains = HMC(3.0), Estimate(ring), 6
    state = jax.vmap(sampler.init)(jax.random.normal(jax.random.key(1), (chains, 3)))
    step = jax.jit(jax.vmap(lambda s, xi: sampler.step(s, grad, 0.4, xi)))
    refused = 0
    for xi in jax.random.normal(jax.random.key(2), (40, chains, 2, 3)):
        new = step(state, xi)
        anew = step(state._replace(at=jax.vmap(At.start)(state.position)), xi)
        np.testing.assert_allclose(new.position, anew.position, rtol=1e-5, atol=1e-5)
        refused += int(jnp.sum(jnp.all(new.position == state.position, axis=1)))
        found = ~jnp.isnan(new.at.log_density)  # a chain that was refused at once has found nothing
        value, slope = jax.vmap(jax.value_and_grad(ring))(new.position[found])
        np.testing.assert_allclose(new.at.log_density[found], value, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(new.at.gradient[found], slope, rtol=1e-4, atol=1e-4)
        state = new
    assert 5 < refused < 200 and bool(found.all())


def test_another_temperature_has_another_density():
    """Of constrained parameters log p + T log|J|: what was found at T = 1 is not kept at T = 4."""
    sampler = HMC(2.0)
    at = lambda T: Estimate(lambda q: -jnp.sum(jnp.exp(q)) + T * jnp.sum(q))  # noqa: E731
    state = sampler.init(jnp.array([0.3, -0.2]))
    for T in (1.0, 4.0, 4.0, 2.0):
        anew = state._replace(at=At.start(state.position))
        xi = jnp.array([[0.7, -1.2], [-9.0, 0.0]])  # the second is refused by no energy
        state, wanted = (sampler.step(s, at(T), 0.3, xi, temperature=T) for s in (state, anew))
        np.testing.assert_allclose(state.position, wanted.position, rtol=1e-5)
        np.testing.assert_allclose(state.at.log_density, wanted.at.log_density, rtol=1e-5)
    refused = sampler.step(
        state, at(3.0), 0.3, jnp.array([[0.7, -1.2], [9.0, 0.0]]), temperature=3.0
    )
    np.testing.assert_array_equal(refused.position, state.position)
    assert (
        float(refused.at.temperature) == 2.0
    )  # what is there is of T = 2 still, and will be taken anew


def test_lengths_run_through_all_up_to_the_longest_and_are_at_least_one():
    counts = jnp.arange(64, dtype=jnp.int32)
    lengths = jax.vmap(HMC(8.0).length)(counts)
    assert np.unique(lengths).tolist() == [1, 2, 3, 4, 5, 6, 7, 8]
    np.testing.assert_array_equal(jax.vmap(HMC(1.0).length)(counts), 1)
    places = np.asarray(jax.vmap(HMC.place)(counts[:7]))
    np.testing.assert_array_equal(places, [1 / 2, 1 / 4, 3 / 4, 1 / 8, 5 / 8, 3 / 8, 7 / 8])
    assert int(HMC(8.0).length(jnp.int32(2**LENGTH_BITS - 1))) == 1


def test_what_has_no_density_is_refused_and_lost_energy_counted():
    wall = Estimate(lambda q: jnp.where(q[0] > 0, -0.5 * q[0] ** 2, -jnp.inf))
    steep = Estimate(lambda q: -(10.0**8) * q[0] ** 2)
    sampler = HMC(1.0)
    start = sampler.init(jnp.array([0.1]))
    for grad in (wall, steep):
        end = sampler.step(start, grad, 1.0, jnp.array([[-3.0], [0.0]]))
        assert isinstance(end, State)
        np.testing.assert_array_equal(end.position, start.position)
        assert int(end.divergences) == 1 and int(end.count) == 1


@pytest.mark.parametrize("leapfrogs", [0.5, float("nan"), "many"])
def test_leapfrogs_are_at_least_one(leapfrogs):
    with pytest.raises(sgld.errors.UsageError, match="HMC's leapfrogs must be at least 1"):
        HMC(leapfrogs)
