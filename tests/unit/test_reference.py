"""The referee against closed forms; comparison and Laplace draws on known laws."""

import dataclasses
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.distributions import constraints
from scipy import stats

import sgld
from sgld.gallery.handout import nig
from sgld.inference import reference as adaptation
from sgld.inference.reference import _centers
from sgld.model.prepare import prepare

UsageError = sgld.errors.UsageError


def run(posterior, data, init, **kwargs):
    return sgld.reference(posterior, data, init, progress=False, **kwargs)


# -- targets: (posterior, data, init, mean, sd), moments of the flat position ------------------


def correlated():
    rng = np.random.default_rng(3)
    root = rng.normal(size=(5, 5)) * np.array([1.0, 3.0, 10.0, 0.1, 1.0])
    covariance = root.T @ root
    precision = jnp.asarray(np.linalg.inv(covariance), jnp.float32)
    mean = np.arange(5.0)
    centre = jnp.asarray(mean, jnp.float32)
    log_density = lambda t: -0.5 * (t - centre) @ precision @ (t - centre)  # noqa: E731
    posterior = sgld.Posterior(log_density)
    return posterior, None, np.zeros(5, np.float32), mean, np.sqrt(np.diag(covariance))


def conjugate():
    x = np.random.default_rng(4).normal(2.0, 1.5, 40).astype(np.float32)
    posterior = sgld.Posterior(
        lambda t: -0.5 * (t / 3) ** 2, lambda t, x: -0.5 * ((x - t) / 1.5) ** 2
    )
    precision = 1 / 9 + 40 / 2.25
    mean = x.sum(dtype=np.float64) / 2.25 / precision
    return posterior, x, np.float32(0.0), np.array([mean]), np.array([precision**-0.5])


def regression():
    rng = np.random.default_rng(5)
    x = np.stack([np.ones(60), rng.normal(1.0, 2.0, 60)], 1)
    y = x @ [0.5, -1.0] + rng.normal(size=60)
    prior = nig(2)
    exact = prior.condition(x, y)
    init = {"beta": np.zeros(2, np.float32), "log_sigma2": np.float32(0.0)}
    data = (x.astype(np.float32), y.astype(np.float32))
    mean, sd = (np.append(m["beta"], m["log_sigma2"]) for m in (exact.mean, exact.sd))
    return prior.model(), data, init, mean, sd


def gamma():
    """rate of a Poisson with a gamma prior, sampled as its logarithm."""
    counts = np.random.default_rng(6).poisson(3.0, 5).astype(np.float32)
    posterior = sgld.Posterior(
        lambda t: jnp.log(t) - t,  # gamma(2, 1)
        lambda t, y: y * jnp.log(t) - t,
        constraints=constraints.positive,
    )
    law = stats.gamma(2 + counts.sum(), scale=1 / 6)
    return posterior, counts, np.float32(1.0), np.array([law.mean()]), np.array([law.std()])


def logistic():
    rng = np.random.default_rng(7)
    x = rng.normal(size=(25, 2)).astype(np.float32)
    y = (rng.random(25) < 1 / (1 + np.exp(-x @ [1.5, -1.0]))).astype(np.float32)
    posterior = sgld.Posterior(
        lambda t: -0.5 * jnp.sum(t**2) / 4,
        lambda t, row: row[1] * (row[0] @ t) - jax.nn.softplus(row[0] @ t),
    )
    axis = np.linspace(-7, 9, 400)
    a, b = np.meshgrid(axis, axis, indexing="ij")
    eta = a[..., None] * x[:, 0] + b[..., None] * x[:, 1]
    log_p = (y * eta - np.logaddexp(0, eta)).sum(-1) - (a**2 + b**2) / 8
    p = np.exp(log_p - log_p.max())
    p /= p.sum()
    mean = np.array([(p * a).sum(), (p * b).sum()])
    sd = np.sqrt([(p * (a - mean[0]) ** 2).sum(), (p * (b - mean[1]) ** 2).sum()])
    return posterior, (x, y), np.zeros(2, np.float32), mean, sd


TARGETS = (correlated, conjugate, regression, gamma, logistic)
GATED = (conjugate, regression)


def check(draws, mean, sd):
    """Within 4.5 Monte Carlo standard errors, and close."""
    values, _ = draws.flat()
    ones = sgld.Draws.of({"x": values})  # the flat vector is one leaf
    mcse = np.array([row["mcse_mean"] for row in ones.summary().parameters.values()])
    z = (values.mean((0, 1)) - mean) / mcse
    assert np.abs(z).max() < 4.5, z
    square = sgld.Draws.of({"x": (values - mean) ** 2})
    mcse = np.array([row["mcse_mean"] for row in square.summary().parameters.values()])
    z = (((values - mean) ** 2).mean((0, 1)) - sd**2) / mcse
    assert np.abs(z).max() < 4.5, z
    assert np.abs(values.std((0, 1)) / sd - 1).max() < 0.12
    assert draws.verdict.word == "trusted", draws.verdict


@pytest.mark.parametrize("method", ["nuts", "hmc"])
@pytest.mark.parametrize(
    "target",
    [t if t in GATED else pytest.param(t, marks=pytest.mark.slow) for t in TARGETS],
)
def test_nuts_and_hmc_against_closed_forms(target, method):
    posterior, data, init, mean, sd = target()
    draws = run(posterior, data, init, method=method, num_warmup=300)
    check(draws, mean, sd)
    assert draws.info["divergences"] == 0 and draws.info["method"] == method


@pytest.mark.slow
@pytest.mark.parametrize("method", ["nuts", "hmc", "mala", "metropolis"])
@pytest.mark.parametrize("target", TARGETS)
def test_every_method_for_long(target, method):
    posterior, data, init, mean, sd = target()
    check(run(posterior, data, init, method=method, num_draws=20_000, thin=2, seed=1), mean, sd)


@pytest.mark.parametrize(
    ("method", "low", "high"), [("mala", 0.47, 0.68), ("metropolis", 0.22, 0.38)]
)
def test_the_step_is_adapted_to_the_acceptance(method, low, high):
    posterior, data, init, mean, sd = regression()
    draws = run(posterior, data, init, method=method, num_draws=2000, thin=3)
    check(draws, mean, sd)
    assert low < draws.info["acceptance_rate"] < high


@pytest.mark.slow
def test_without_a_mode_the_warm_up_finds_the_scales():
    """Started on the ridge between two shallow wells, where there is no mode, in wild units."""
    scale = jnp.array([0.01, 100.0])
    well = lambda x: x**2 / 2 - x**4 / 4  # noqa: E731
    posterior = sgld.Posterior(lambda t: jnp.sum(well(t / scale)))
    draws = run(posterior, None, np.zeros(2, np.float32), max_doublings=8)
    assert not draws.info["whitened"]
    axis = np.linspace(-5, 5, 4001)
    p = np.exp(well(axis))
    sd = np.sqrt((p * axis**2).sum() / p.sum()) * np.asarray(scale)
    check(draws, np.zeros(2), sd)


def test_what_is_reported_is_the_output_under_its_names():
    posterior = sgld.Posterior(
        lambda t: -0.5 * jnp.sum(t["a"] ** 2),
        output=lambda t: {"b": 10 + 2 * t["a"]},
        names=("one", "two"),
        init={"a": np.zeros(2, np.float32)},
    )
    draws = run(posterior, None, None, num_draws=400)
    assert draws.names == ("one", "two")
    assert isinstance(draws.position["b"], np.ndarray) and draws.position["b"].shape == (4, 400, 2)
    np.testing.assert_allclose(draws.mean()["b"], 10, atol=0.4)
    np.testing.assert_allclose(draws.sd()["b"], 2, atol=0.3)
    assert (draws.weights == draws.weights[0, 0]).all()
    assert draws.info["seconds"] > 0 and len(draws.info["step_size"]) == 4


@pytest.mark.slow
def test_the_seed_decides_and_other_chains_do_not():
    posterior, data, init, *_ = conjugate()
    few = {"num_draws": 60, "num_warmup": 60}
    a = run(posterior, data, init, num_chains=2, **few)
    b = run(posterior, data, init, num_chains=2, **few)
    c = run(posterior, data, init, num_chains=2, seed=1, **few)
    d = run(posterior, data, init, num_chains=3, **few)
    np.testing.assert_array_equal(a.position, b.position)
    assert not (a.position == c.position).any()
    # compiled for another width: the same numbers up to rounding, which chaos then amplifies
    np.testing.assert_allclose(a.position[:, 0], d.position[:2, 0], atol=0.05)


@pytest.mark.slow
@pytest.mark.usefixtures("nothing_compiled")
def test_new_numbers_compile_nothing():
    from sgld.inference import reference as chains

    posterior, data, init, *_ = conjugate()
    run(posterior, data, init, num_draws=50, num_warmup=50)
    before = chains._advance._cache_size()
    run(posterior, data + 1, init, num_draws=70, num_warmup=30, seed=3)
    assert chains._advance._cache_size() == before


def test_the_windows_are_those_of_stan():
    table = adaptation.windows(1000)
    assert np.flatnonzero(table[:, 1]).tolist() == [99, 149, 249, 449, 949]
    assert table[:, 0].nonzero()[0][[0, -1]].tolist() == [75, 949]
    assert np.flatnonzero(adaptation.windows(100)[:, 1]).tolist() == [89]
    assert not adaptation.windows(19).any()


def test_a_window_measures_variances_and_dual_averaging_finds_the_aim(rng):
    u = jnp.asarray(rng.normal(size=(400, 2)) * [0.1, 10.0], jnp.float32)

    def one(a, both):
        i, u = both
        accepted = jnp.exp(-a.step_size)  # falls with the step size, and is .6 at .51
        return adaptation.update(a, u, accepted, jnp.float32(0.6), i < 300, i == 299), None

    a, _ = jax.lax.scan(one, adaptation.begin(u[0]), (jnp.arange(400), u))
    variance = np.asarray(u[:300]).var(0, ddof=1)
    np.testing.assert_allclose(a.inverse_mass, (300 * variance + 5e-3) / 305, rtol=1e-4)
    assert abs(float(adaptation.with_mean_step(a).step_size) / -np.log(0.6) - 1) < 0.1


# -- the verdict ---------------------------------------------------------------------------------


def test_too_few_draws_are_not_mixed():
    posterior, data, init, *_ = conjugate()
    draws = run(posterior, data, init, num_draws=20)
    assert draws.verdict.word == "not mixed" and "num_draws" in draws.verdict.reasons[0]


@pytest.mark.slow
def test_two_modes_are_not_mixed():
    log_density = lambda t: jnp.logaddexp(-0.5 * (t - 30) ** 2, -0.5 * (t + 30) ** 2)  # noqa: E731
    posterior = sgld.Posterior(log_density)
    # the curvature at 0 is negative: chains start around 0 and fall to both sides
    draws = run(posterior, None, np.float32(0.0), num_draws=400, num_chains=8)
    assert draws.verdict.word == "not mixed"


@pytest.mark.slow
def test_divergences_are_not_mixed():
    """Neal's funnel."""
    posterior = sgld.Posterior(
        lambda t: -0.5 * (t[0] / 3) ** 2 - 4 * t[0] - 0.5 * jnp.sum(t[1:] ** 2) * jnp.exp(-t[0])
    )
    given = {"num_draws": 500, "num_warmup": 300, "target_acceptance": 0.8}
    draws = run(posterior, None, np.zeros(9, np.float32), **given)
    assert draws.verdict.word == "not mixed"
    assert draws.info["divergences"] > 0
    assert "diverged" in draws.verdict.reasons[-1]


# -- compare ----------------------------------------------------------------------------------


def test_compare_finds_known_shifts(rng):
    x = rng.normal(size=(4, 4000, 3))
    y = rng.normal(size=(4, 4000, 3)) * [1.0, 1.3, 1.0] + [0.0, 0.0, 0.5]
    names = ("a", "b", "c")
    reference = sgld.Draws.of(x, names=names)
    table = sgld.compare(sgld.Draws.of(y, names=names), reference)
    assert table.names == names
    z = (table.mean_error - [0, 0, 0.5]) / table.mean_error_se
    assert np.abs(z).max() < 4
    z = (table.sd_ratio - [1, 1.3, 1]) / table.sd_ratio_se
    assert np.abs(z).max() < 4
    np.testing.assert_allclose(
        table.mean_error_se, np.hypot([1, 1.3, 1], 1) / np.sqrt(16_000), rtol=0.1
    )
    np.testing.assert_allclose(
        table.sd_ratio_se, np.array([1, 1.3, 1]) * np.sqrt(2 / (2 * 16_000)), rtol=0.15
    )
    last = str(table).splitlines()[-1]
    assert "mean of 'c' +0.4" in last and "sd of 'b' x 1.3" in last
    assert repr(table) == str(table)
    assert set(table.to_dict()["a"]) == {"mean_error", "mean_error_se", "sd_ratio", "sd_ratio_se"}


def test_compare_matches_names_in_any_order_and_uses_weights(rng):
    x = rng.normal(size=(2, 500, 2)) * [1.0, 5.0]
    a = sgld.Draws.of(x, names=("p", "q"))
    b = sgld.Draws.of(x[..., ::-1], names=("q", "p"))
    table = sgld.compare(a, b)
    np.testing.assert_allclose(table.mean_error, 0, atol=1e-12)
    np.testing.assert_allclose(table.sd_ratio, 1, atol=1e-12)
    half = np.where(np.arange(500) < 250, 0.0, -np.inf) * np.ones((2, 1))
    weighted = sgld.Draws.of(x, names=("p", "q"), log_weight=half)
    only = sgld.Draws.of(x[:, :250], names=("p", "q"))
    np.testing.assert_allclose(sgld.compare(weighted, only).mean_error, 0, atol=1e-10)


def test_compare_refuses_other_parameters():
    x = np.zeros((1, 10, 2))
    a = sgld.Draws.of(x, names=("p", "q"))
    with pytest.raises(UsageError, match="'q' is not in reference, which has p, r"):
        sgld.compare(a, sgld.Draws.of(x, names=("p", "r")))
    with pytest.raises(UsageError, match="'r' is not in draws"):
        sgld.compare(a, sgld.Draws.of(np.zeros((1, 10, 3)), names=("p", "q", "r")))
    with pytest.raises(UsageError, match="reference must be Draws"):
        sgld.compare(a, 3)


def test_compare_of_draws_that_do_not_move_says_so():
    x = sgld.Draws.of(np.zeros((1, 10)))
    table = sgld.compare(x, x)
    assert "do not move" in str(table)
    assert table.to_dict()["x"]["mean_error"] is None


# -- laplace ----------------------------------------------------------------------------------


def test_laplace_is_exact_on_a_gaussian():
    posterior, data, init, mean, sd = correlated()
    draws = sgld.laplace(posterior, data, init, num_draws=5000)
    values, _ = draws.flat()
    assert np.abs((values.mean((0, 1)) - mean) / sd * np.sqrt(20_000)).max() < 4.5
    assert np.abs(values.std((0, 1)) / sd - 1).max() < 4.5 / np.sqrt(40_000)
    assert draws.verdict.word == "unknown"
    assert "approximation" in draws.verdict.reasons[0]
    assert "nearly Gaussian" in draws.verdict.reasons[1] and draws.info["nu"] < 0.01


def test_laplace_maps_back_and_says_when_it_is_not_gaussian():
    posterior, data, init, *_ = gamma()
    draws = sgld.laplace(posterior, data, init)
    assert (draws.position > 0).all()
    far = sgld.Posterior(lambda t: -0.1 * t**2 - jnp.exp(t))
    draws = sgld.laplace(far, None, np.float32(0.0))
    assert "not nearly Gaussian" in draws.verdict.reasons[-1]


def test_laplace_at_a_mode_that_was_found():
    posterior, data, init, *_ = conjugate()
    mode = sgld.find_map(posterior, data, init)
    a, b = sgld.laplace(posterior, data, mode), sgld.laplace(posterior, data, init)
    np.testing.assert_allclose(a.position, b.position, atol=1e-5)
    wrong = dataclasses.replace(mode, z=mode.z + 1)
    draws = sgld.laplace(posterior, data, wrong)
    assert any("the gradient vanishes" in reason for reason in draws.verdict.reasons)


def test_laplace_names_the_direction_that_is_flat():
    posterior = sgld.Posterior(lambda t: -0.5 * t["a"] ** 2 + 0.0 * t["b"])
    init = {"a": np.float32(0.3), "b": np.float32(0.0)}
    with pytest.raises(UsageError, match=r"not positive definite.*along \+1 'b'"):
        sgld.laplace(posterior, None, init)


# -- wrong arguments ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"method": "nutz"}, "Did you mean 'nuts'?"),
        ({"num_chains": 0}, "num_chains must be a whole number, at least 1. Got 0"),
        ({"num_draws": 2.5}, "num_draws must be a whole number"),
        ({"num_warmup": 0}, "num_warmup must be a whole number"),
        ({"thin": 0}, "thin must be"),
        ({"max_doublings": 0}, "max_doublings"),
        ({"max_leapfrogs": True}, "max_leapfrogs"),
        ({"target_acceptance": 1.0}, "target_acceptance must lie between 0 and 1"),
        ({"seed": -1}, "seed"),
        ({"init": None}, "init is missing"),
        ({"data": None}, "data is None"),
        ({"posterior": 3}, "posterior must be an sgld.Posterior"),
    ],
)
def test_wrong_arguments_are_answered_in_a_sentence(change, words):
    posterior, data, init, *_ = conjugate()
    given = {"posterior": posterior, "data": data, "init": init, **change}
    with pytest.raises(UsageError, match=words.replace("?", r"\?")):
        sgld.reference(**given)


def test_blackjax_is_imported_where_it_is_used_not_with_the_package():
    code = "import sys, sgld; sgld.sample, sgld.reference; print('blackjax' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"


# -- several modes ----------------------------------------------------------------------------


def test_chains_begin_around_every_mode_and_say_where_they_stay_apart():
    far = sgld.Posterior(lambda t: jnp.logaddexp(-0.5 * (t[0] - 15) ** 2, -0.5 * (t[0] + 15) ** 2))
    draws = run(far, None, np.array([15.0], np.float32), num_draws=200, num_warmup=200)
    assert draws.info["num_modes"] == 2 and draws.verdict.word == "not mixed"
    assert (np.sign(draws.position.mean((1, 2))) == [1, -1, 1, -1]).all() or (
        np.sign(draws.position.mean((1, 2))) == [-1, 1, -1, 1]
    ).all()


def test_a_target_acceptance_is_raised_while_transitions_diverge_unless_it_is_given():
    funnel = sgld.Posterior(
        lambda t: -0.5 * (t[0] / 3) ** 2 - 4 * t[0] - 0.5 * jnp.sum(t[1:] ** 2) * jnp.exp(-t[0])
    )
    given = {"num_draws": 100, "num_warmup": 100, "num_chains": 2}
    for seed in range(1, 9):  # which seeds diverge is for the processor's rounding to say
        given["seed"] = seed
        by_hand = run(funnel, None, np.zeros(9, np.float32), target_acceptance=0.8, **given)
        assert by_hand.info["target_acceptance"] == 0.8
        if by_hand.info["divergences"]:
            break
    by_itself = run(funnel, None, np.zeros(9, np.float32), **given)
    assert by_hand.info["divergences"] > 0
    assert by_itself.info["target_acceptance"] in (0.95, 0.99)
    assert by_itself.info["divergences"] < by_hand.info["divergences"]


# -- mass far out ------------------------------------------------------------------------------------


def foot(x):
    """A normal on a foot of .7% of the mass that reaches to 1000 sds."""
    return jnp.logaddexp(-0.5 * x**2, jnp.log(1e-5) - (x / 1000) ** 8)


def test_chains_that_mixed_where_a_ray_says_that_they_missed_mass_are_not_trusted():
    for seed in range(8):  # which seeds meet the foot is for the processor's rounding to say
        draws = run(sgld.Posterior(foot), None, 0.0, num_draws=800, num_warmup=300, seed=seed)
        if np.abs(draws.position).max() < 10 and draws.verdict.word != "not mixed":
            break
    assert np.abs(draws.position).max() < 10
    assert draws.verdict.word == "unknown" and draws.verdict.doubts
    assert "possible hidden mass" in draws.verdict.reasons[0]
    assert "chains did not visit" in draws.verdict.reasons[0]


def test_half_of_the_chains_begin_where_rays_say_that_mass_is():
    posterior = sgld.Posterior(lambda t: foot(t["x"]) - 0.5 * t["y"] ** 2)
    problem = prepare(posterior, None, {"x": np.float32(0), "y": np.float32(0)})
    for num_chains, most in ((4, 2), (2, 1), (1, 0)):
        _, known, num_modes, starts = _centers(problem, 0, num_chains)
        assert num_modes == 1 and len(starts) == min(1 + most, 1 + len(known.doubts))
    assert np.abs(starts[0]).max() < 1e-3
    _, _, _, starts = _centers(problem, 0, 4)
    assert np.abs(starts[1:]).max(axis=1).min() > 100
