"""Exact chains in every mode: what holds them there, how their draws are weighed, and what is not trusted."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

import sgld
from sgld.diagnostics import evidence, exact_rule
from sgld.diagnostics.exact_rule import Trajectories
from sgld.inference.tuning.mode_masses import bridge, integral
from sgld.inference.tuning.several_modes import _merged
from sgld.model.prepare import prepare
from sgld.results.statistics import Strata, strata_of
from sgld.results.verdict import Modes
from sgld.samplers.confined_hmc import ConfinedHMC, Regions, State
from sgld.samplers.gradients.full import Estimate
from sgld.samplers.hmc import HMC
from sgld.samplers.hmc import State as Hamiltonian

RNG = np.random.default_rng(0)


# -- one integral ------------------------------------------------------------------------------


def ratios(x, sd=1.2, mean=0.3):
    """log p - log q at x, p being 3.7 times the standard normal density."""
    return np.log(3.7) + norm.logpdf(x) - norm.logpdf(x, mean, sd)


def slow(rng, chains, draws, rho):
    x = rng.standard_normal((chains, draws))
    for t in range(1, draws):
        x[:, t] = rho * x[:, t - 1] + np.sqrt(1 - rho**2) * x[:, t]
    return x


@pytest.mark.parametrize(("rho", "sd"), [(0.0, 1.2), (0.9, 1.2), (0.0, 2.5)])
def test_an_integral_and_its_error(rho, sd):
    """Over replicates the error is as large as it is said to be, of slow chains too."""
    rng, z = np.random.default_rng(1), []
    for _ in range(150):
        found = bridge(ratios(slow(rng, 8, 120, rho), sd), ratios(rng.normal(0.3, sd, 600), sd))
        z.append((found.log_z - np.log(3.7)) / found.se)
    assert abs(np.mean(z)) < 0.4 and 0.75 < np.std(z) < 1.35


def test_where_the_density_is_0_nothing_is_integrated():
    """Of a standard normal what lies above -.5, with a q that knows nothing of the edge."""
    x = norm.ppf(norm.cdf(-0.5) + (1 - norm.cdf(-0.5)) * RNG.random((8, 500)))
    y = RNG.normal(0.4, 0.9, 4000)
    q = np.where(y > -0.5, norm.logpdf(y) - norm.logpdf(y, 0.4, 0.9), -np.inf)
    found = bridge(norm.logpdf(x) - norm.logpdf(x, 0.4, 0.9), q)
    assert found.se < 0.02 and found.log_z == pytest.approx(norm.logcdf(0.5), abs=4 * found.se)


def test_draws_that_do_not_meet_tell_nothing():
    far = bridge(
        ratios(RNG.standard_normal((4, 50)), 0.1, 30.0), ratios(RNG.normal(30, 0.1, 200), 0.1, 30.0)
    )
    assert far.se == np.inf
    few = bridge(ratios(RNG.standard_normal((4, 10))), ratios(RNG.normal(0.3, 1.2, 40)))
    assert few.se == np.inf
    assert bridge(np.full((2, 50), np.nan), np.zeros(100)).se == np.inf


def test_the_integral_over_a_region_of_chains():
    """e^7 exp(-|z - 2|^2 / 2s^2) in two dimensions, above the line that goes through the mode."""
    sd = 0.7
    posterior = sgld.Posterior(lambda z: 7 - 0.5 * jnp.sum((z - 2) ** 2) / sd**2)
    problem = prepare(posterior, None, jnp.zeros(2))
    z = 2 + sd * RNG.standard_normal((16, 400, 2))
    z[..., 0] = 2 + np.abs(z[..., 0] - 2)
    found = integral(problem, lambda x: x[:, 0] >= 2, z, np.full(2, 2.0), np.random.default_rng(2))
    assert found.se < 0.02
    assert found.log_z == pytest.approx(np.log(2 * np.pi * sd**2 / 2), abs=4 * found.se)


# -- what holds chains in a region ------------------------------------------------------------

ONE = jnp.ones((2, 1, 1))
HALVES = Regions(jnp.array([[-1.0], [3.0]]), ONE, jnp.zeros(2), jnp.array([0, 1]))  # the edge is 1


def confined(start, steps=400, chains=256):
    sampler = ConfinedHMC(3.0, HALVES, jnp.array([[[1.0]], [[0.5]]]))
    grad = Estimate(lambda q: -0.5 * jnp.sum(q**2))

    @jax.jit
    def run(key):
        state = jax.vmap(sampler.init)(jnp.full((chains, 1), start))

        def step(state, key):
            xi = jax.random.normal(key, (chains, 2, 1))
            state = jax.vmap(lambda s, x: sampler.step(s, grad, 0.5, x))(state, xi)
            return state, state.position

        return jax.lax.scan(step, state, jax.random.split(key, steps))

    state, path = run(jax.random.key(0))
    return state, np.asarray(path, np.float64)[50:]


def test_a_step_is_one_of_hmc_in_the_metric_of_its_region():
    factor = jnp.array([[[1.0, 0.0], [0.0, 1.0]], [[0.5, 0.2], [-0.3, 1.5]]])
    centers = jnp.array([[-20.0, 0.0], [20.0, 0.0]])
    regions = Regions(centers, jnp.stack([jnp.eye(2)] * 2), jnp.zeros(2), jnp.array([0, 1]))
    grad = Estimate(lambda q: -0.5 * jnp.sum((q - centers[1]) ** 2 / jnp.array([1.0, 3.0])))
    start, noise = jnp.array([20.5, -0.5]), jnp.array([[0.7, -1.1], [0.0, 0.0]])
    confined = ConfinedHMC(4, regions, factor)
    found = confined.step(confined.init(start), grad, 0.1, noise)
    metric = sgld.Dense(factor[1] @ factor[1].T, factor[1])
    hmc = HMC(4)
    alone = hmc.step(hmc.init(start), grad, 0.1, noise, preconditioner=metric)
    assert not np.allclose(found.position, start)
    np.testing.assert_allclose(found.position, alone.position, rtol=1e-6)


@pytest.mark.parametrize("start", [0.5, 1.5])
def test_chains_follow_the_density_of_their_region(start):
    """A standard normal below 1, and above it, where the metric is another."""
    state, path = confined(start)
    inside = path < 1 if start < 1 else path > 1
    assert inside.all()
    below, density = norm.cdf(1), norm.pdf(1)
    mean = -density / below if start < 1 else density / (1 - below)
    second = 1 - density / below if start < 1 else 1 + density / (1 - below)
    assert path.mean() == pytest.approx(mean, abs=0.02)
    assert (path**2).mean() == pytest.approx(second, rel=0.02)
    left = np.asarray(state.left).sum(0)
    there = int(start < 1)
    assert left[there] > 1000 and left[1 - there] == 0
    np.testing.assert_array_equal(state.region, 1 - there)


def test_a_region_is_where_a_mode_s_own_approximation_is_the_largest():
    """N(0, .1^2) of height 3 and N(1, 1): the edge solves 3 - 50 z^2 = -(z - 1)^2 / 2."""
    regions = Regions(
        jnp.array([[0.0], [1.0]]), jnp.array([[[10.0]], [[1.0]]]), jnp.array([3.0, 0.0]),
        jnp.array([0, 1]),
    )  # fmt: skip
    edges = np.roots([-49.5, -1.0, 3.5])
    for edge in edges:
        inner, outer = (regions.of(jnp.array([s * edge], jnp.float32)) for s in (0.999, 1.001))
        assert (int(inner), int(outer)) == (0, 1)


def test_modes_that_leak_into_one_another_are_one_region():
    left = np.zeros((4, 4))
    np.testing.assert_array_equal(_merged(np.arange(4), left), [0, 1, 2, 3])
    left[1, 3] = 0.05  # one way is enough: the other is the larger region
    np.testing.assert_array_equal(_merged(np.arange(4), left), [0, 1, 2, 1])
    left[0, 2] = 0.019
    np.testing.assert_array_equal(_merged(np.arange(4), left), [0, 1, 2, 1])
    left[0, 1] = left[3, 2] = 0.03
    np.testing.assert_array_equal(_merged(np.arange(4), left), [0, 0, 0, 0])
    # of modes of which two are one region already
    np.testing.assert_array_equal(_merged(np.array([0, 1, 0]), np.zeros((2, 2))), [0, 1, 0])


# -- what regions make together -------------------------------------------------------------


def test_estimates_of_strata_and_their_errors():
    """Against replicates: draws of two regions, and masses with an error of .02."""
    mass, se = np.array([0.3, 0.7]), 0.02
    covariance = se**2 * np.array([[1, -1], [-1, 1.0]])
    rng, found = np.random.default_rng(4), []
    for _ in range(300):
        values = rng.standard_normal((8, 100, 1)) * np.repeat([1.0, 2.0], 4)[:, None, None]
        values += np.repeat([0.0, 10.0], 4)[:, None, None]
        shift = se * rng.standard_normal()
        strata = Strata(values, np.repeat([0, 1], 4), mass + shift * np.array([1, -1]), covariance)
        found.append(
            [strata.mean[0], strata.sd[0], strata.mean_se[0], strata.sd_se[0] * strata.sd[0]]
        )
    mean, sd, mean_se, sd_se = np.array(found).T
    assert np.mean(mean) == pytest.approx(7.0, abs=0.05)
    assert np.mean(sd) == pytest.approx(np.sqrt(0.3 * 1 + 0.7 * 4 + 21), rel=0.005)
    assert np.mean(mean_se) == pytest.approx(np.std(mean), rel=0.15)
    assert np.mean(sd_se) == pytest.approx(np.std(sd), rel=0.2)
    assert strata.r_hat[0] < 1.05 and 400 < strata.ess()[0] < 1100


# -- whole runs -------------------------------------------------------------------------------


def mixture(places, masses, sds, d=2):
    def log_density(x):
        parts = [
            jnp.log(m) - d * jnp.log(s) - 0.5 * jnp.sum((x - place * jnp.eye(d)[0]) ** 2) / s**2
            for place, m, s in zip(places, masses, sds, strict=True)
        ]
        return jax.scipy.special.logsumexp(jnp.stack(parts))

    return sgld.Posterior(log_density)


FAR = {"places": (0.0, 30.0), "masses": (0.3, 0.7), "sds": (0.5, 1.0)}


def sample(posterior, **given):
    return sgld.sample(posterior, None, jnp.full(2, 0.2), progress=False, **given)


@pytest.fixture(scope="module")
def far(tmp_path_factory):
    path = tmp_path_factory.mktemp("modes") / "run"
    return sample(mixture(**FAR), path=path), path


def test_modes_30_sds_apart_are_weighed(far):
    draws, _ = far
    modes = draws.modes
    assert draws.verdict.word == "trusted", draws.verdict
    np.testing.assert_allclose(modes.position[:, 0], [30, 0], atol=0.01)
    np.testing.assert_allclose(modes.mass, [0.7, 0.3], atol=0.003)
    assert 0 < modes.mass_se.max() < 0.003 and modes.measured
    assert draws.verdict.extra["trajectories"] == 64 * draws.num_draws
    mean, sd = 21.0, np.sqrt(0.3 * 0.25 + 0.7 + 0.21 * 900)
    assert draws.mean()[0] == pytest.approx(mean, abs=0.01 * sd)
    assert draws.sd()[0] == pytest.approx(sd, rel=0.01)
    assert draws.quantile(0.15)[0] == pytest.approx(0.0, abs=0.1)  # half of the lower mode
    assert re.search(r"in 2 modes.* 0\.(700|69\d+|70\d+) \+- 0\.00\d*[1-9]", str(draws.verdict))


def test_weights_are_those_of_the_regions_and_chains_are_in_both(far):
    draws, _ = far
    strata = strata_of(draws, draws.flat()[0])
    share = np.bincount(strata.region, draws.weights.sum(axis=1))
    np.testing.assert_allclose(share, strata.mass, rtol=1e-6)
    np.testing.assert_array_equal(np.bincount(draws.modes.chain), [32, 32])
    row = draws.summary().parameters["x[0]"]
    assert row["r_hat"] < 1.02 and row["ess_bulk"] > 2000
    assert row["mcse_mean"] < 0.01 * row["sd"]


def test_a_stored_run_knows_its_modes(far):
    draws, path = far
    again = sgld.load(path)
    np.testing.assert_array_equal(again.modes.mass, draws.modes.mass)
    np.testing.assert_array_equal(again.modes.chain, draws.modes.chain)
    np.testing.assert_array_equal(again.weights, draws.weights)
    assert str(again.summary()) == str(draws.summary())


def test_the_same_plan_again_holds_chains_in_the_same_modes(far):
    draws, _ = far
    again = sample(mixture(**FAR), **{**draws.plan.arguments(), "burn_in": 50, "seed": 5})
    assert again.verdict.word == "trusted", again.verdict
    np.testing.assert_allclose(again.modes.mass, [0.7, 0.3], atol=0.005)
    one = sample(mixture(**FAR), **{**draws.plan.arguments(), "num_chains": 1, "num_draws": 2000})
    assert one.verdict.word != "trusted"


@pytest.mark.slow
def test_what_is_kept_is_weighed_too_and_moments_are_not_trusted():
    draws = sample(mixture(**FAR), keep=lambda x: {"first": x[0]})
    assert draws.verdict.word == "trusted", draws.verdict
    assert float(draws.mean()["first"]) == pytest.approx(21.0, abs=0.15)
    assert sample(mixture(**FAR), keep="moments", num_draws=200).verdict.word != "trusted"


# -- what is not trusted ------------------------------------------------------------------------


def test_doubts_stand_for_runs_kept_in_several_modes_too(monkeypatch):
    """Asked of the draws in all of them, with what each weighs; what stands is said of the mode it is found in."""
    asked = []

    def stands(known, z, *, exact, weights):
        asked.append((exact, z.shape[:2] == weights.shape))
        return ("there may be mass far out",)

    monkeypatch.setattr(evidence, "remaining_doubts", stands)
    verdict = sample(mixture(**FAR)).verdict
    assert set(asked) == {(True, True)}
    assert verdict.word == "unknown" and "there may be mass far out" in verdict.reasons[0]


def modes(mass, covariance, chain):
    k = len(mass)
    return Modes(
        ("x",), np.zeros((k, 1)), np.zeros(k), np.array(mass), np.array(covariance),
        np.arange(k), np.array(chain),
    )  # fmt: skip


def strata(mass, covariance, places=(0.0, 10.0)):
    values = RNG.standard_normal((8, 500, 1)) + np.repeat(places, 4)[:, None, None]
    return Strata(values, np.repeat([0, 1], 4), np.array(mass), np.array(covariance))


def spread(se):
    return se**2 * np.array([[1.0, -1.0], [-1.0, 1.0]])


@pytest.mark.parametrize(("mass", "se", "said"), [
    (0.9023, 0.0003, "0.9023 +- 0.0003"), (0.7, 0.02, "0.700 +- 0.020"), (1e-7, 0.0, "0.000000 +- 0.000000"),
])  # fmt: skip
def test_a_mass_is_told_to_the_first_digit_of_its_error(mass, se, said):
    assert exact_rule._share(mass, se) == said


def test_a_mass_that_is_not_known_is_named_with_its_error():
    told = modes([0.3, 0.7], spread(0.03), np.repeat([0, 1], 4))
    said = exact_rule._uncertain_masses(told, strata([0.3, 0.7], spread(0.03)))
    assert said is not None and said.startswith("the mass of mode 1 is 0.3 +- 0.03")
    assert exact_rule._uncertain_masses(told, strata([0.3, 0.7], spread(0.005))) is None


def test_a_small_mass_far_away_must_be_known_the_better():
    """.002 +- .001 at 300 sds: an sd of 13 that may be 9 or 16."""
    told = modes([0.998, 0.002], spread(0.001), np.repeat([0, 1], 4))
    said = exact_rule._uncertain_masses(told, strata([0.998, 0.002], spread(0.001), (0.0, 300.0)))
    assert said.startswith("the mass of mode 2 is 0.002 +- 0.001, so that an sd is known within")
    assert (
        exact_rule._uncertain_masses(told, strata([0.998, 0.002], spread(0.001), (0.0, 3.0)))
        is None
    )


@pytest.mark.parametrize(
    ("there", "back", "doubt"), [(0.01, 0.0, True), (0.01, 0.008, False), (1e-6, 0.0, False)]
)
def test_trajectories_that_do_not_come_back_tell_of_mass_that_no_chain_sees(there, back, doubt):
    found = strata([0.5, 0.5], spread(0.001))
    told = modes([0.5, 0.5], spread(0.001), found.region)
    left = np.array([[0.0, there], [back, 0.0]])
    said = exact_rule._one_way(told, found, Trajectories(50_000, 0, 1.0, left))
    assert (said is not None) == doubt
    if said is not None:
        assert "from mode 1 to mode 2 and do not come back" in said


def test_a_mode_without_a_chain_is_named():
    found = strata([0.5, 0.5], spread(0.001))
    alone = Strata(found.values, np.zeros(8, int), found.mass, found.covariance)
    told = modes([0.5, 0.5], spread(0.001), alone.region)
    assert exact_rule._absent(told, alone).startswith("no chain is in mode 2, which")
    assert exact_rule._absent(told, found) is None


def test_energies_are_judged_region_by_region():
    """Two regions whose log densities differ by 40: pooled, energies seem to change too slowly."""
    U = np.repeat([0.5, 40.5], 4)
    states = Hamiltonian(
        np.zeros((8, 1)), np.full(8, 100), np.zeros(8, int), U, np.full(8, 50.0), None
    )
    left = np.zeros((8, 2))
    left[:4, 1] = 2
    found = Trajectories.within(State(np.zeros((8, 1)), np.repeat([0, 1], 4), states, left), 1)
    assert found.energy == pytest.approx(1.0) and found.num == 800
    np.testing.assert_allclose(found.left, [[0, 0.02], [0, 0]])
    assert Trajectories.of(states, 1).energy < 0.01
