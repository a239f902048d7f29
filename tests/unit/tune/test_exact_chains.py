"""Exact chains: warm-up, price, modes, and what is refused or tried again."""

import shutil
from unittest.mock import MagicMock, Mock

import jax.numpy as jnp
import numpy as np
import pytest

import sgld
from sgld.approximation.known import Known
from sgld.approximation.laplace import Laplace
from sgld.approximation.modes import KnownModes
from sgld.core.pytrees import Layout
from sgld.diagnostics.exact_rule import Trajectories
from sgld.diagnostics.hidden_mass import Beyond
from sgld.errors import UsageError
from sgld.inference import loop
from sgld.inference.execute import next_attempts, revise_plan, target_num_draws
from sgld.inference.tuning import exact_chains as from_chains_module
from sgld.inference.tuning import plan as plan_module
from sgld.inference.tuning import survey as known_module
from sgld.inference.tuning.cost import (
    EXACT_DRAWS,
    EXACT_SECONDS,
    Exact,
    exact_chains,
    with_lengths,
)
from sgld.inference.tuning.ensemble import ENSEMBLE_CHAINS, MAX_LEAPFROGS, _leapfrogs, warmed_up
from sgld.inference.tuning.exact_chains import from_chains
from sgld.inference.tuning.survey import survey_posterior
from sgld.model.cost import Cost
from sgld.model.prepare import prepare
from sgld.model.problem import Problem, Request, Target
from sgld.results.plan import Plan, Setup
from sgld.results.verdict import Verdict
from sgld.samplers.hmc import HMC

COVARIANCE = np.array([[1.0, 0.9, 0.0], [0.9, 1.0, 0.0], [0.0, 0.0, 25.0]])
CORRELATION = COVARIANCE / np.sqrt(np.outer(np.diag(COVARIANCE), np.diag(COVARIANCE)))
PRECISION = np.linalg.inv(COVARIANCE).astype(np.float32)
GAUSSIAN = Problem(
    Target(sgld.Posterior(lambda t: -0.5 * t @ jnp.asarray(PRECISION) @ t), Layout.of(jnp.zeros(3)))
)


def banana(t):
    return -0.5 * (t[0] ** 2 + (t[1] - 0.5 * t[0] ** 2) ** 2 / 0.25)


def starts(count, sd, seed=0):
    return sd * np.random.default_rng(seed).standard_normal((count, 3))


@pytest.fixture(scope="module")
def warm():
    return warmed_up(GAUSSIAN, sgld.Full(), starts(ENSEMBLE_CHAINS, 3.0), np.eye(3), 0)


def test_an_ensemble_finds_a_gaussians_covariance_and_settles_there(warm):
    matrix = warm.factor @ warm.factor.T
    scale = np.sqrt(np.diag(COVARIANCE))
    np.testing.assert_allclose(matrix / np.outer(scale, scale), CORRELATION, atol=0.12)
    assert 0.3 < np.sqrt(warm.step_size) < 1.8 and warm.leapfrogs * np.sqrt(warm.step_size) >= 2.19
    np.testing.assert_allclose(warm.zs.std(0) / scale, 1, atol=0.3)
    exact = -0.5 * np.einsum("ci,ij,cj->c", warm.zs, PRECISION, warm.zs)
    np.testing.assert_allclose(warm.log_density, exact, atol=1e-4)


def test_chains_stay_where_there_is_density_while_they_adapt():
    half = sgld.Posterior(lambda t: jnp.where(t[0] > 0, -0.5 * jnp.sum(t**2), -jnp.inf))
    problem = Problem(Target(half, Layout.of(jnp.zeros(3))))
    found = warmed_up(problem, sgld.Full(), np.abs(starts(8, 1.0)), np.eye(3), 0)
    assert (found.zs[:, 0] > 0).all() and np.isfinite(found.log_density).all()


def test_a_warm_up_depends_on_its_seed_alone_not_on_the_pieces(warm, monkeypatch):
    monkeypatch.setattr("sgld.core.work.PIECE_SECONDS", 1e-9)  # one trajectory at a time
    again = warmed_up(GAUSSIAN, sgld.Full(), starts(ENSEMBLE_CHAINS, 3.0), np.eye(3), 0)
    for one, other in zip(warm, again, strict=True):
        np.testing.assert_array_equal(one, other)
    other = warmed_up(GAUSSIAN, sgld.Full(), starts(ENSEMBLE_CHAINS, 3.0), np.eye(3), 1)
    assert not np.allclose(other.zs, warm.zs)


@pytest.mark.slow
def test_a_banana_is_sampled_exactly():
    draws = sgld.sample(sgld.Posterior(banana), None, jnp.zeros(2), progress=False)
    exact = np.array([1.0, np.sqrt(0.25 + 0.25 * 2)])
    np.testing.assert_allclose(draws.sd() / exact, 1, atol=0.05)
    np.testing.assert_allclose((draws.mean() - [0, 0.5]) / exact, 0, atol=0.06)
    assert draws.verdict.word == "trusted", draws.verdict
    assert draws.verdict.reasons[0].startswith("exact sampler (HMC)")
    assert draws.num_chains == ENSEMBLE_CHAINS and draws.plan.setup.exact
    assert draws.verdict.extra["e_bfmi"] > 0.5 and draws.verdict.extra["divergences"] == 0


def two_modes(apart, share, sd=1.0):
    """share N(apart / 2, 1) + (1 - share) N(-apart / 2, sd^2) in two dimensions."""

    def log_density(t):
        above = jnp.log(share) - 0.5 * jnp.sum((t - apart / 2) ** 2)
        below = jnp.log(1 - share) - 0.5 * jnp.sum((t + apart / 2) ** 2) / sd**2 - 2 * jnp.log(sd)
        return jnp.logaddexp(above, below)

    return sgld.Posterior(log_density)


@pytest.mark.parametrize(
    ("share", "sd"),
    [(0.5, 1.0), *(pytest.param(*p, marks=pytest.mark.slow) for p in ((0.9, 1.0), (0.5, 0.5)))],
)
def test_chains_that_stay_in_modes_of_their_own_are_weighed(share, sd):
    """That half of the chains started in each is no evidence: what each holds is measured."""
    posterior = two_modes(12.0, share, sd)
    draws = sgld.sample(posterior, None, jnp.full(2, 5.5), progress=False, num_draws=150)
    assert draws.plan.known.other_modes == 1
    ends = np.sign(np.asarray(draws.position)[:, -1, 0])
    np.testing.assert_array_equal(np.abs(ends.sum()), 0)
    assert draws.verdict.word == "trusted", draws.verdict
    np.testing.assert_allclose(draws.mean(), 6 * (2 * share - 1), atol=0.1)
    np.testing.assert_allclose(sorted(draws.modes.mass), sorted([share, 1 - share]), atol=0.01)


def test_chains_of_one_metric_that_stay_in_their_modes_are_not_trusted(monkeypatch):
    monkeypatch.setattr(from_chains_module, "in_modes", lambda *args: None)
    draws = sgld.sample(two_modes(12.0, 0.5), None, jnp.full(2, 5.5), progress=False, num_draws=100)
    assert draws.verdict.word == "not mixed", draws.verdict
    assert not draws.modes.measured


def test_modes_between_which_chains_move_are_weighed():
    draws = sgld.sample(two_modes(4.0, 0.3), None, jnp.full(2, 1.5), progress=False)
    assert draws.verdict.word == "trusted", draws.verdict
    assert np.abs(draws.mean() - (0.3 - 0.7) * 2).max() < 0.1 * 2.1
    assert float(draws.mean(lambda t: t[0] > 0)) == pytest.approx(0.3, abs=0.03)
    np.testing.assert_allclose(draws.modes.mass, [0.7, 0.3], atol=0.03)


def test_the_number_of_chains_can_be_given_and_so_can_the_lengths():
    """Of a warm-up's 64 chains, in their order, some of all kinds go on."""
    given = {"num_draws": 150, "burn_in": 3, "thin": 2}
    draws = sgld.sample(
        sgld.Posterior(banana), None, jnp.zeros(2), num_chains=4, progress=False, **given
    )
    assert draws.plan.setup.exact and draws.num_chains == 4 and draws.num_draws == 150
    assert list(draws.step[:2]) == [3, 5]
    short = sgld.sample(sgld.Posterior(banana), None, jnp.zeros(2), max_steps=100, progress=False)
    assert short.num_chains == ENSEMBLE_CHAINS and short.num_draws == 100
    assert short.verdict.word in ("trusted", "not mixed")


def test_the_plan_runs_again_by_hand_and_says_the_same_sampler():
    draws = sgld.sample(sgld.Posterior(banana), None, jnp.zeros(2), num_draws=400, progress=False)
    arguments = draws.plan.arguments()
    again = sgld.sample(
        sgld.Posterior(banana), None, jnp.zeros(2), progress=False, **{**arguments, "burn_in": 50, "seed": 3}
    )  # fmt: skip
    assert again.plan.setup.exact and again.verdict.extra["exact"] == "HMC"
    assert again.plan.setup.sampler.leapfrogs == draws.plan.setup.sampler.leapfrogs


def test_rows_keep_their_values_at_a_centre_in_the_order_they_have():
    """Energies are relative, row by row, whatever the seed that shuffled the rows."""
    y = np.arange(40, dtype=np.float32) ** 2
    posterior = sgld.Posterior(lambda t: -0.5 * t**2, lambda t, y: -0.5 * (y - t) ** 2)
    for seed in (0, 1):
        problem = prepare(posterior, y, jnp.float32(3), seed=seed)
        full = sgld.Full.around(problem, jnp.array([2.0]))
        z = jnp.array([2.5])
        exact = -0.5 * 2.5**2 - 0.5 * np.sum((y - 2.5) ** 2 - (y - 2.0) ** 2)
        found = full.at(problem, None).log_density(z)
        assert float(found) == pytest.approx(exact, rel=1e-5)
        plain = sgld.Full().at(problem, None)
        np.testing.assert_allclose(full.at(problem, None)(z), plain(z), rtol=1e-5)
        assert (
            full.prepare(problem, None).base is None
            and sgld.Full().prepare(problem, z).base is None
        )
        np.testing.assert_array_equal(full.prepare(problem, jnp.array([2.0])).base, full.base)


def test_small_differences_of_large_sums_are_kept():
    """In float32, 20,000 rows of about 1e4 each: a difference of .5 in a sum of 1e8."""
    rng = np.random.default_rng(0)
    y = (150 + rng.standard_normal(20_000)).astype(np.float32)
    posterior = sgld.Posterior(lambda t: 0.0 * t, lambda t, y: -0.5 * (y - t) ** 2 - 1e4)
    problem = prepare(posterior, y, jnp.float32(150))
    full = sgld.Full.around(problem, jnp.array([150.0])).at(problem, None)
    z = np.float32(150.0078125)
    exact = -0.5 * np.sum((y.astype(float) - z) ** 2 - (y.astype(float) - 150.0) ** 2)
    assert float(full.log_density(jnp.array([z]))) == pytest.approx(exact, abs=0.02)


def test_groups_of_chains_are_of_modes_and_of_densities():
    """The first half near one mode, the rest near the other; each from thin to dense."""
    start = np.full(2, 5.5)
    problem = prepare(two_modes(12.0, 0.5), None, jnp.asarray(start, jnp.float32))
    found = survey_posterior(problem, 0, 1.0, by_hand=False)
    ensemble = from_chains_module._ensemble(problem, found, 0)
    assert len(set(np.sign(ensemble.zs[: ENSEMBLE_CHAINS // 2, 0]))) == 1
    assert len(set(np.sign(ensemble.zs[ENSEMBLE_CHAINS // 2 :, 0]))) == 1
    assert ensemble.zs[0, 0] * ensemble.zs[-1, 0] < 0
    for half in np.split(ensemble.log_density, 2):
        assert np.all(np.diff(half) >= 0)


def known(nu=0.0, modes=None):
    return Known(gaussian=Mock(spec=Laplace), nu=nu, modes=modes)


def test_what_is_affordable(monkeypatch):
    """Predicted from counted operations alone; nothing is learnt where it is not."""
    exact, batches = Mock(Plan), Mock(Plan)
    monkeypatch.setattr(from_chains_module, "_on_all", lambda *args: exact)
    monkeypatch.setattr(from_chains_module, "_ensemble", lambda *args: None)
    monkeypatch.setattr(from_chains_module, "_in_batches", lambda *args: batches)
    monkeypatch.setattr(from_chains_module, "gradient_cost", lambda problem: of_rows(problem))

    def of_rows(problem):
        return Cost(problem.num_data * (5e-9 + 5e-11 * problem.dimension), 5e-6)

    def chosen(rows, d, nu, *, first=True, modes=None, T=1.0, **given):
        problem = Mock(Problem, num_data=rows, dimension=d)
        problem.posterior.log_likelihood = None
        return from_chains(problem, request(**given), known(nu, modes), T, first=first)

    modes = MagicMock(KnownModes)
    modes.__len__.return_value = 1
    assert chosen(200, 5, 0.2) is exact is chosen(0, 50, None)
    assert chosen(10_000, 20, 0.2) is None  # the Gaussian is asked first
    assert chosen(10_000, 20, 0.2, first=False) is exact is chosen(10_000, 20, 5.0)
    assert chosen(10_000, 20, 0.2, modes=modes) is exact
    assert chosen(10**6, 20, 0.2, first=False) is None and chosen(10**6, 300, 5.0) is None
    assert chosen(200, 5, 0.2, T=2.0) is None and chosen(200, 5, 0.2, sampler=sgld.SGLD()) is None


def test_the_price_is_that_of_gradients_and_of_the_metric():
    """64 chains x (350 trajectories + 200 draws) x 5 d^{1/4} leapfrogs of a millisecond a gradient."""
    found = exact_chains(Cost(1e-4, 0.0), 1)
    assert found == Exact(64, 200, pytest.approx(64 * 550 * 5 * (1e-4 + 3e-11)))
    metric = exact_chains(Cost(0.0, 0.0), 400)
    assert metric.seconds == pytest.approx(64 * 550 * 5 * 400**0.25 * 3e-11 * 400**2)


def test_chains_share_what_is_done_once():
    shared = exact_chains(Cost(0.0, 1e-3), 1)
    assert shared[:2] == (64, 399) and shared.seconds == pytest.approx(749 * 5e-3, rel=1e-4)


@pytest.mark.parametrize(("d", "draws"), [(2, 800), (20, 800), (32, 512), (500, 200)])
def test_cheap_draws_are_more(d, draws):
    assert exact_chains(Cost(1e-9, 1e-6), d)[:2] == (64, draws)


def test_where_gradients_are_dear_fewer_chains_are_taken():
    each = EXACT_SECONDS / (5 * (64 * 350 + EXACT_DRAWS))
    assert exact_chains(Cost(0.999 * each, 0.0), 1)[:2] == (64, 200)
    few = exact_chains(Cost(1.001 * each, 0.0), 1)
    assert few[:2] == (16, 240) and few.seconds == pytest.approx(
        9_440 / 35_200 * EXACT_SECONDS, rel=0.01
    )


def test_fewer_chains_are_warmed_up_and_go_on(monkeypatch):
    """What was decided before the warm-up is what runs, and its draws are those of all chains."""
    monkeypatch.setattr(from_chains_module, "exact_chains", lambda *args: Exact(16, 400, 1.0))
    draws = sgld.sample(sgld.Posterior(banana), None, jnp.zeros(2), progress=False)
    assert draws.num_chains == 16 and len(draws.plan.setup.starts) == 16
    assert draws.plan.setup.num_draws == 400 and draws.num_draws >= 400
    four = with_lengths(draws.plan, request(num_chains=4)).setup
    assert (four.num_chains, four.num_draws) == (4, 1600)


def known_of(posterior):
    return survey_posterior(prepare(posterior, None, jnp.zeros(2)), 0, 1.0, by_hand=False)


NO_LIMITS = {"max_steps": None, "max_seconds": None}


def request(**given):
    names = {name: "auto" for name in Request.__dataclass_fields__}
    return Request(**{**names, "tolerance": 0.05, "num_chains": 4, "seed": 0, **NO_LIMITS, **given})


def test_what_is_tried_next():
    plan = Plan(Setup(None, None, None, None), Known(gaussian=Mock(spec=Laplace)))
    biased, unknown = (Verdict(word, ("why",)) for word in ("biased", "unknown"))
    tried = [{"what": "exact", "why": "why"}]
    assert next_attempts(plan, request(), Verdict("trusted", ()), []) == []
    assert next_attempts(plan, request(), unknown, []) == ["exact"]
    assert next_attempts(plan, request(), biased, []) == ["exact", "halve"]
    assert next_attempts(plan, request(), biased, tried) == ["halve"]
    assert next_attempts(plan, request(), unknown, tried) == []
    assert next_attempts(plan, request(), biased, 3 * tried) == []
    assert next_attempts(plan, request(step_size=0.1), biased, []) == []


def test_the_note_of_a_second_run_leaves_out_the_remedy_that_it_applies(monkeypatch):
    monkeypatch.setattr("sgld.inference.execute.with_lengths", lambda plan, ask: plan)
    plan = Plan(Setup(None, None, None, lambda step: 0.2), Known())
    attempt = {"what": "halve", "why": "sd 12% too wide; use a smaller step_size."}
    (note,) = revise_plan(plan, attempt, None, request()).notes
    assert "12% too wide)" in note and "0.1" in note and "smaller" not in note


@pytest.mark.parametrize(
    ("diverged", "of", "energy", "tried"),
    [
        (3, 51_200, 0.2, True), (0, 51_200, 1.0, False), (375, 409_600, 0.48, False),
        (53, 69_632, 0.15, False), (85, 155_136, 0.98, True), (155, 51_200, 0.98, False),
    ],
)  # fmt: skip
def test_half_the_step_is_tried_where_very_few_trajectories_diverge(diverged, of, energy, tried):
    """A funnel's neck is beyond any step: the second run would cost as much and say the same.

    Some more may diverge where energies say that there is no neck: on a banana, its ends.
    """
    setup = Setup(HMC(8.0), sgld.Full(), None, None)
    extra = {"divergences": diverged, "trajectories": of, "e_bfmi": energy}
    missed = Verdict("not mixed", ("why",), extra=extra)
    plan = Plan(setup, Known(gaussian=Mock(spec=Laplace)))
    assert next_attempts(plan, request(), missed, []) == (["finer"] if tried else [])
    assert next_attempts(plan, request(), missed, [{"what": "finer", "why": "why"}]) == []


def test_a_finer_run_takes_half_the_step_over_the_same_length(monkeypatch):
    monkeypatch.setattr(
        "sgld.inference.execute.next_attempts", lambda p, ask, v, tried: [] if tried else ["finer"]
    )
    posterior = sgld.Posterior(banana)
    first = from_chains(
        prepare(posterior, None, jnp.zeros(2)), request(), known_of(posterior), 1.0, first=False
    )
    again = sgld.sample(posterior, None, jnp.zeros(2), progress=False).plan
    assert again.setup.step_size(0) == pytest.approx(first.setup.step_size(0) / 4)
    assert again.setup.sampler.leapfrogs == pytest.approx(2 * first.setup.sampler.leapfrogs)
    assert any("trajectories were halved" in note for note in again.notes)


def test_a_resumed_second_attempt_is_the_same_to_the_bit(tmp_path, monkeypatch):
    monkeypatch.setattr(plan_module, "MAX_GAUSSIAN_NU", 0.9)  # begin with the Gaussian at the mode
    monkeypatch.setattr(
        known_module, "check_tails_and_modes", lambda *_: Beyond()
    )  # blind to its tails
    posterior = sgld.Posterior(lambda t: -1.5 * jnp.log1p(t**2 / 2))  # Student-t: r2 is low
    first = sgld.sample(posterior, None, 0.1, path=tmp_path / "whole", progress=False)
    assert any("exactly" in note for note in first.info["plan"]["notes"])
    shutil.copytree(tmp_path / "whole", tmp_path / "killed")
    for name in ("result.json", "summary.json"):
        (tmp_path / "killed" / name).unlink()
    (tmp_path / "killed" / "draws.npz").unlink()
    again = sgld.resume(tmp_path / "killed", posterior, None, 0.1, progress=False)
    np.testing.assert_array_equal(again.position, first.position)
    assert again.info["plan"]["notes"] == first.info["plan"]["notes"]


def test_exact_chains_that_were_stopped_go_on_to_the_same_bits(tmp_path, goes_on_to_the_same_bits):
    """Positions, the place in the sequence of lengths, divergences and energies are in the checkpoint."""
    whole, again = goes_on_to_the_same_bits(
        tmp_path / "run", sgld.Posterior(banana), None, jnp.zeros(2), num_draws=200
    )
    np.testing.assert_array_equal(again.position, whole.position)
    assert again.verdict.extra == whole.verdict.extra


def test_an_improper_posterior_is_refused_and_its_direction_named():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 2)).astype(np.float32)
    y = (X[:, 0] - 0.5 * X[:, 1] > 0.1).astype(np.float32)

    def likelihood(b, row):
        eta = b["base"] + row[0] @ b["slope"]
        return row[1] * eta - jnp.logaddexp(0.0, eta)

    start = {"base": jnp.float32(0), "slope": jnp.zeros(2)}
    flat = sgld.Posterior(lambda b: 0.0 * b["base"], likelihood)
    with pytest.raises(UsageError, match=r"improper.*\+1 'slope\[0\]' -0\.5 'slope\[1\]'"):
        sgld.sample(flat, (X, y), start, progress=False)
    with pytest.raises(UsageError, match=r"improper.*redundant"):
        sgld.sample(
            sgld.Posterior(lambda t: -0.5 * (t[0] + t[1]) ** 2), None, jnp.zeros(2), progress=False
        )


def test_a_saddle_is_left():
    double_well = sgld.Posterior(lambda t: 0.5 * t[0] ** 2 - 0.02 * t[0] ** 4 - 0.5 * t[1] ** 2)
    draws = sgld.sample(double_well, None, jnp.zeros(2), progress=False, num_draws=200)
    gaussian = draws.plan.known.gaussian
    assert gaussian.positive_definite
    # at the mode, t^2 = 1 / .08, the curvature is 2; the centre is the mean of that mode's half
    np.testing.assert_allclose(np.diag(gaussian.covariance), [0.5, 1.0], rtol=1e-3)
    assert 3 < abs(gaussian.center[0]) < 3.6


@pytest.mark.parametrize("step", [1e-9, 1e-30, 0.0, 0.5])
def test_a_step_that_goes_to_nothing_does_not_make_a_trajectory_without_an_end(step):
    count = float(_leapfrogs(jnp.float32(2.2), jnp.float32(step)))
    assert count == pytest.approx(min(2.2 / step, MAX_LEAPFROGS) if step else MAX_LEAPFROGS)


@pytest.mark.parametrize(("energy", "goes_on"), [(0.1, False), (0.4, True)])
def test_a_run_whose_energies_decide_its_word_is_not_prolonged(energy, goes_on):
    """40 draws of 4 chains are too few, whatever their energies."""
    posterior = sgld.Posterior(lambda x: -0.5 * jnp.sum(x**2))
    problem = prepare(posterior, None, np.zeros(2, np.float32))
    setup = Setup(HMC(8.0), sgld.Full(), None, None, num_draws=40, num_chains=4)
    z = np.random.default_rng(0).standard_normal((40, 4, 2)).astype(np.float32)
    ones = np.ones(40)
    raw = loop.Raw(
        z, ones, ones, failed_at=np.full(4, -1), num_steps=40, last=z[-1],
        trajectories=Trajectories(160, 0, energy),
    )  # fmt: skip
    wanted = target_num_draws(problem, Plan(setup, Known()), request(), None, None, raw)
    assert (wanted > 40) is goes_on


@pytest.mark.parametrize(("every", "wanted"), [(1, 1600), (4, 500), (32, 400)])
def test_draws_that_memory_dropped_count_towards_the_most_that_are_gone_on_to(every, wanted):
    """Of 40 planned at most 2,000 are made, of which one in `every` is kept; those there are stay."""
    problem = prepare(sgld.Posterior(lambda x: -0.5 * jnp.sum(x**2)), None, np.zeros(2, np.float32))
    setup = Setup(HMC(8.0), sgld.Full(), None, None, num_draws=40, num_chains=4)
    z = np.random.default_rng(0).standard_normal((400, 4, 2)).astype(np.float32)
    raw = loop.Raw(
        z, np.ones(400), np.ones(400), failed_at=np.full(4, -1), num_steps=400 * every, last=z[-1],
        every=every,
    )  # fmt: skip
    assert target_num_draws(problem, Plan(setup, Known()), request(), 1e9, None, raw) == wanted
