"""Trajectories that follow some rows for all: what a guide says, and that the draws are exact whatever it says."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sgld
from sgld.approximation.known import Known
from sgld.approximation.laplace import laplace_at
from sgld.inference.tuning import exact_chains as from_chains
from sgld.inference.tuning import several_modes, surrogate
from sgld.inference.tuning.cost import (
    END_GRADIENTS,
    REDUCED_CHAINS,
    Exact,
    exact_chains,
    trajectory_seconds,
)
from sgld.inference.tuning.ensemble import Ensemble
from sgld.inference.tuning.surrogate import follow_guide, guide_rows, make_guide
from sgld.model import sums
from sgld.model.cost import Cost
from sgld.model.prepare import prepare
from sgld.samplers.confined_hmc import ConfinedHMC
from sgld.samplers.gradients.control_variates import Guide
from sgld.samplers.gradients.full import Estimate, Full
from sgld.samplers.hmc import HMC, At, propose
from sgld.samplers.preconditioners.fixed import Scalar

N, EVENTS = 20_000, 1
RNG = np.random.default_rng(3)
X = RNG.normal(size=N).astype(np.float32)
Y = np.zeros(N, np.float32)
Y[RNG.choice(N, EVENTS, p=np.exp(X) / np.exp(X).sum(), replace=False)] = 1


def log_likelihood(b, row):
    eta = b[0] + b[1] * row[0]
    return row[1] * eta - jax.nn.softplus(eta)


POSTERIOR = sgld.Posterior(lambda b: -0.5 * jnp.sum((b / 4) ** 2), log_likelihood)
MODE = np.array([-9.0, 0.8])


@pytest.fixture(scope="module")
def problem():
    return prepare(POSTERIOR, (X, Y), jnp.asarray(MODE, jnp.float32), seed=0)


@pytest.fixture(scope="module")
def known(problem):
    return Known(laplace_at(problem, MODE))


@pytest.fixture(scope="module")
def guide(problem, known):
    return make_guide(problem, known, 0)


def test_a_guide_has_the_gradient_and_the_curvature_of_all_rows_at_its_centre(problem, guide):
    said, center = guide.log_density(problem), guide.center
    np.testing.assert_allclose(
        jax.grad(said)(center), sums.value_and_gradient(problem, center)[1], rtol=1e-3, atol=1e-3
    )
    np.testing.assert_allclose(
        jax.hessian(said)(center), -sums.curvature(problem, center), rtol=1e-3, atol=1e-4
    )
    bare = replace(guide, curvature=0 * guide.curvature).log_density(problem)
    assert np.abs(jax.hessian(bare)(center) + sums.curvature(problem, center)).max() > 0.01


def test_its_rows_count_for_all_and_those_that_stand_out_once(problem, guide):
    weight, numbers = np.asarray(guide.weight), np.asarray(guide.numbers)
    assert weight.sum() == pytest.approx(N, rel=1e-5) and len(set(numbers.tolist())) == len(numbers)
    events = np.flatnonzero(np.asarray(problem.source.take(jnp.arange(N))[1]) == 1)
    assert len(events) == EVENTS and set(events) <= set(numbers[weight == 1])
    assert (weight == 1).sum() < len(weight) / 4


def test_it_is_the_posterior_to_third_order(problem, guide, known):
    zs = known.gaussian.draw(np.random.default_rng(0), 64)
    said = jax.vmap(guide.log_density(problem))(problem.array(zs))
    astray = sums.differences(problem, zs, MODE) - np.asarray(said)
    shrunk = MODE + 0.5 * (zs - MODE)
    nearer = np.asarray(jax.vmap(guide.log_density(problem))(problem.array(shrunk)))
    half = sums.differences(problem, shrunk, MODE) - nearer
    assert 0.002 < astray.std() < 0.15
    assert 5 < astray.std() / half.std() < 20  # 8 of a third order alone


@pytest.mark.parametrize(
    ("rows", "d", "share"), [(19_999, 2, None), (20_000, 2, 4000), (10**6, 2, 50_000), (20_000, 201, None)]
)  # fmt: skip
def test_a_guide_is_taken_where_it_pays(rows, d, share):
    posterior = sgld.Posterior(lambda b: -0.5 * jnp.sum(b**2), lambda b, y: -0.5 * (y - b[0]) ** 2)
    of = prepare(posterior, np.zeros(rows, np.float32), jnp.zeros(d), seed=0)
    assert guide_rows(of) == share


def test_its_price_is_that_of_the_ends_and_of_the_rows_that_are_followed():
    price, L = Cost(1e-2, 0.0), 5 * 16**0.25
    whole, guided = exact_chains(price, 16), exact_chains(price, 16, 0.05)
    assert whole[:2] == guided[:2] == (REDUCED_CHAINS, 240)
    assert guided.seconds / whole.seconds == pytest.approx((END_GRADIENTS + 0.05 * L) / L)
    assert whole.seconds == pytest.approx(590 * trajectory_seconds(price, 16, REDUCED_CHAINS))


def exactly(q):
    return -0.5 * jnp.sum(q**2)


def far_off(q):
    return -jnp.sum((q - 0.4) ** 2) - 0.1 * jnp.sum(q**4)


MISLED = Estimate(exactly, followed=far_off)


def test_a_trajectory_goes_back_along_the_way_it_came_whatever_it_follows():
    """Reversible, and volume is preserved: the two that make Metropolis's answer exact."""
    q, p = jnp.array([0.3, -1.0]), jnp.array([0.7, 0.2])
    there = propose(MISLED, At.start(q), p, 0.3, 5, Scalar(1.0))
    back = propose(MISLED, there.end, -there.momentum, 0.3, 5, Scalar(1.0))
    np.testing.assert_allclose(back.end.position, q, atol=1e-6)
    np.testing.assert_allclose(back.momentum, -p, atol=1e-6)
    lost = exactly(there.end.position) - exactly(q) + 0.5 * jnp.sum(p**2 - there.momentum**2)
    assert float(there.log_ratio) == pytest.approx(float(lost), abs=1e-5)
    assert float(back.log_ratio) == pytest.approx(-float(lost), abs=1e-5)
    assert abs(float(lost)) > 0.1  # misled indeed

    def mapped(phase):
        found = propose(MISLED, At.start(phase[:2]), phase[2:], 0.3, 5, Scalar(1.0))
        return jnp.concatenate([found.end.position, found.momentum])

    jacobian = jax.jacfwd(mapped)(jnp.concatenate([q, p]))
    assert float(jnp.linalg.det(jacobian)) == pytest.approx(1.0, abs=1e-4)


def test_a_wrong_guide_leaves_the_law_as_it_is():
    sampler, chains, steps = HMC(4.0), 4000, 12
    rng = np.random.default_rng(0)
    states = jax.vmap(sampler.init)(jnp.asarray(rng.normal(size=(chains, 1)), jnp.float32))

    @jax.jit
    def step(states, noise):
        return jax.vmap(lambda s, xi: sampler.step(s, MISLED, 0.2, xi))(states, noise)

    for _ in range(steps):
        states = step(states, jnp.asarray(rng.normal(size=(chains, 2, 1)), jnp.float32))
    x = np.asarray(states.position)[:, 0]
    assert abs(x.mean()) < 4 / chains**0.5 and abs(x.var() - 1) < 4 * (2 / chains) ** 0.5


def test_a_guide_that_is_astray_is_not_followed(problem, guide, known):
    begun = known.gaussian.draw(np.random.default_rng(1), 8), known.gaussian.factor, 0
    found = follow_guide(problem, guide, *begun)
    assert found.guide is guide and found.zs.shape == (8, 2)
    wrong = replace(guide, slope=guide.slope + jnp.array([3.0, 0.0]))
    assert follow_guide(problem, wrong, *begun) is None
    endless = replace(guide, curvature=guide.curvature + 10 * jnp.eye(2))
    assert follow_guide(problem, endless, *begun) is None


def test_a_guide_that_misses_mass_where_a_chain_began_is_not_followed(
    problem, guide, known, monkeypatch
):
    begun = known.gaussian.draw(np.random.default_rng(1), 8), known.gaussian.factor, 0
    ordinary = sums.differences

    def more(problem, places, center):
        return ordinary(problem, places, center) + lifted * (np.arange(len(places)) == 8)

    monkeypatch.setattr(surrogate.sums, "differences", more)
    lifted = 1.0
    assert follow_guide(problem, guide, *begun) is not None
    lifted = 30.0
    assert follow_guide(problem, guide, *begun) is None


def test_a_wedge_beside_the_chains_that_the_guide_misses_is_seen(
    problem, guide, known, monkeypatch
):
    """No chain begins or ends in it, no gradient at the centre leads there, and it is denser than all chains.

    It is all that lies beyond the outermost chain, so that the last bits of the chains' ends do not decide.
    """
    factor, center = known.gaussian.factor, np.asarray(guide.center, np.float64)
    begun = center + 0.5 * np.random.default_rng(1).standard_normal((8, 2)) @ factor.T, factor, 0
    ordinary, inside = sums.differences, []

    def wedged(problem, places, at):
        u = np.linalg.solve(factor, (places - center).T)
        inside.append(u.sum(0) > u.sum(0)[:16].max())  # ends and starts come first
        value = ordinary(problem, places, at)
        return np.where(inside[-1], value[:16].max() + 3, value)

    monkeypatch.setattr(surrogate.sums, "differences", wedged)
    assert follow_guide(problem, guide, *begun) is None
    assert not inside[0][:16].any()


def grid():
    """Mean and sd by quadrature, rows of one cell of x taken together at its mean."""
    cell = np.round(X * 50).astype(int)
    cell -= cell.min()
    count = np.bincount(cell)
    middle = np.bincount(cell, X) / np.maximum(count, 1)
    b0, b1 = np.linspace(-22, -6, 201), np.linspace(-6, 6, 201)
    a, b = (g.ravel() for g in np.meshgrid(b0, b1, indexing="ij"))
    log_p = -(a**2 + b**2) / 32 + EVENTS * a + b * X[Y == 1].sum()
    log_p -= np.logaddexp(0, a[:, None] + b[:, None] * middle) @ count
    w = np.exp(log_p - log_p.max())
    w /= w.sum()
    mean = np.array([w @ a, w @ b])
    return mean, np.sqrt([w @ (a - mean[0]) ** 2, w @ (b - mean[1]) ** 2])


def test_a_guided_run_is_exact_told_and_goes_on_where_it_was_stopped(
    tmp_path, monkeypatch, goes_on_to_the_same_bits
):
    monkeypatch.setattr(from_chains, "exact_chains", lambda *args: Exact(16, 200, 1.0))
    start = jnp.asarray([-9.0, 0.0], jnp.float32)
    whole, again = goes_on_to_the_same_bits(
        tmp_path / "run", POSTERIOR, (X, Y), start, num_draws=200
    )
    np.testing.assert_array_equal(again.position, whole.position)
    gradient = whole.plan.setup.gradient
    assert (
        isinstance(gradient.guide, Guide)
        and whole.plan.setup.burn_in == surrogate.SETTLING_TRAJECTORIES
    )
    assert "trajectories follow 4,000 of 20,000 rows" in whole.plan.notes[0]
    assert whole.plan.setup.arguments()["gradient"].guide is None
    mean, sd = grid()
    np.testing.assert_allclose((whole.mean() - mean) / sd, 0, atol=0.08)
    np.testing.assert_allclose(whole.sd() / sd, 1, atol=0.07)
    assert whole.verdict.word == "trusted"


def test_all_rows_accept_in_the_run_itself(problem, guide):
    """Whatever is follow_guide, `log_density` is that of all rows."""
    grad = replace(Full.around(problem, guide.center), guide=guide).at(problem, None)
    z = guide.center + jnp.array([2.0, 1.0])
    plain = Full.around(problem, guide.center).at(problem, None)
    assert float(grad.log_density(z)) == float(plain.log_density(z))
    assert abs(float(grad.followed(z) - grad.followed(guide.center) - grad.log_density(z))) > 0.01
    assert plain.followed is None


# -- in several modes --------------------------------------------------------------------------


def lone(y):
    """log p(y | its level's mean m), contaminated normal: where most would have it, or where its prior has it."""
    return lambda m: jnp.logaddexp(
        jnp.log(0.98 / 0.3) - 0.5 * ((y - m) / 0.3) ** 2,
        jnp.log(0.02 / 300) - 0.5 * ((y - m) / 300) ** 2,
    )


@pytest.mark.slow
def test_chains_in_two_modes_follow_one_guide_and_go_on(tmp_path, goes_on_to_the_same_bits):
    """One row of 20,000 has a level of its own, 4 prior sds off."""
    alone = np.zeros(N, np.float32)
    alone[N // 2] = 1
    y = (0.5 + X + np.random.default_rng(0).normal(size=N)).astype(np.float32)
    of_level = lone(4.0)

    def likelihood(b, row):
        x, alone, y = row
        common = -0.5 * (y - b[0] - b[1] * x) ** 2
        return jnp.where(alone > 0, of_level(b[2]), common)

    posterior = sgld.Posterior(lambda b: -0.5 * b[2] ** 2, likelihood)
    whole, again = goes_on_to_the_same_bits(
        tmp_path / "run", posterior, (X, alone, y), jnp.zeros(3), num_draws=200
    )
    np.testing.assert_array_equal(again.position, whole.position)
    setup = whole.plan.setup
    assert isinstance(setup.sampler, ConfinedHMC) and isinstance(setup.gradient.guide, Guide)
    assert setup.burn_in == surrogate.SETTLING_TRAJECTORIES
    assert "trajectories follow 4,000 of 20,000 rows" in whole.plan.notes[0]
    m = np.linspace(-8, 8, 100_001)
    log_p = np.asarray(of_level(m), np.float64) - m**2 / 2
    w = np.exp(log_p - log_p.max())
    w /= w.sum()
    mean, sd = w @ m, np.sqrt(w @ m**2 - (w @ m) ** 2)
    assert abs(whole.mean()[2] - mean) < 0.05 * sd
    assert whole.sd()[2] == pytest.approx(sd, rel=0.03)
    assert whole.verdict.word == "trusted"


def test_a_guide_that_does_not_lead_in_one_region_leads_in_none(problem, guide, monkeypatch):
    begun = [several_modes._Begun(np.zeros((8, 2)), laplace_at(problem, MODE))] * 3
    regions, led = object(), iter([1, None, 3])
    monkeypatch.setattr(
        several_modes, "follow_guide", lambda *args: args[-1] is regions and next(led)
    )
    assert several_modes._led_by_guide(problem, guide, begun, regions, 0) is None
    assert next(led) == 3
    led = iter([1, 2, 3])
    assert several_modes._led_by_guide(problem, guide, begun, regions, 0) == [1, 2, 3]


def test_what_was_led_settles_before_it_is_kept(problem, guide):
    at = [laplace_at(problem, MODE)] * 2
    regions = several_modes.regions_of(problem, at, np.zeros(2))
    led = Ensemble(np.eye(2), 1.0, 3.0, np.zeros((8, 2)), np.zeros(8), guide=guide)
    setup = several_modes._setup(problem, at, regions, [led, led])
    assert setup.gradient.guide is guide and setup.burn_in == surrogate.SETTLING_TRAJECTORIES
    alone = several_modes._setup(problem, at, regions, [led._replace(guide=None)] * 2)
    assert alone.gradient.guide is None and alone.burn_in == 0
