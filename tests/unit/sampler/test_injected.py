"""Noise of another law: counts of random bits with the mean and variance of normals."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import kurtosis

import sgld
from sgld.errors import UsageError
from sgld.samplers.noise import counted, draw_noise, excess_kurtosis


def test_all_values_of_four_bits_have_mean_0_variance_1_and_excess_kurtosis_minus_a_half():
    words = jnp.asarray([0x76543210, 0xFEDCBA98], jnp.uint32)
    values = np.asarray(counted(words, jnp.float32), np.float64)
    ones = [bin(number).count("1") - 2 for number in range(16)]
    assert sorted(values) == sorted(ones)
    assert values.mean() == 0 and values.var() == 1
    assert np.mean(values**4) - 3 == -0.5


@pytest.mark.parametrize("nibble", range(8))
def test_every_bit_of_a_word_is_in_one_number(nibble):
    found = np.stack([
        np.asarray(counted(jnp.asarray([1 << (4 * nibble + bit)], jnp.uint32), jnp.float32))
        for bit in range(4)
    ])  # fmt: skip
    expected = np.full((4, 8), -2.0)
    expected[:, nibble] = -1
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("count", [1, 8, 13])
def test_as_many_as_asked_for_and_another_key_gives_others(count):
    first, second = draw_noise(
        "binomial", jax.vmap(jax.random.key)(jnp.arange(2)), jnp.int32(0), count, jnp.float32
    )
    assert first.shape == (count,) and first.dtype == jnp.float32
    assert count < 8 or not np.array_equal(first, second)


@pytest.mark.parametrize("h", [0.01, 0.1, 0.5])
def test_kurtosis_of_sgld_in_closed_form(h):
    a = 1 - 2 * h
    found = excess_kurtosis(sgld.SGLD(None), jnp.asarray(h), jnp.asarray(2.0))
    assert float(found) == pytest.approx(-0.5 * (1 - a**2) / (1 + a**2), rel=1e-4)


@pytest.mark.parametrize("sampler", [sgld.BAOA(), sgld.SGHMC(), sgld.UBU()])
def test_kurtosis_of_momentum_samplers_by_powers_of_their_matrix(sampler):
    h, curvature, count = 0.2, 1.5, sampler.num_noises
    from jax.flatten_util import ravel_pytree

    flat, back = ravel_pytree(sampler.init(jnp.zeros(1)))

    def step(state, xi):
        noise = xi if count == 1 else xi[:, None]
        return ravel_pytree(sampler.step(back(state), lambda q: -curvature * q, h, noise))[0]

    A, B = jax.jacobian(step, argnums=(0, 1))(flat, jnp.zeros(count))
    A, B, total = np.asarray(A, float), np.asarray(B, float), np.zeros(2)
    place = [i for i in range(flat.size) if float(back(jnp.eye(flat.size)[i]).position[0]) == 1]
    for _ in range(500):
        total += np.sum(B[place[0]] ** 4), np.sum(B[place[0]] ** 2)
        B = A @ B
    expected = -0.5 * total[0] / total[1] ** 2
    found = float(excess_kurtosis(sampler, jnp.asarray(h), jnp.asarray(curvature)))
    assert found == pytest.approx(expected, rel=1e-3)


def gaussian_run(noise, **how):
    posterior = sgld.Posterior(lambda t: -0.5 * jnp.sum(t**2))
    return sgld.sample(
        posterior, None, jnp.zeros(50), step_size=0.5, thin=10, burn_in=100, num_draws=2500, num_chains=4,
        noise=noise, progress=False, **how,
    )  # fmt: skip


@pytest.mark.parametrize(("noise", "excess"), [("binomial", -0.3), ("normal", 0.0)])
def test_the_law_of_a_run_has_the_variance_of_normals_and_the_kurtosis_of_the_formula(
    noise, excess
):
    x = np.asarray(gaussian_run(noise).position, np.float64).ravel()  # half a million, a = 1/2
    assert x.var() == pytest.approx(1 / (1 - 0.25), rel=0.01)
    assert kurtosis(x) == pytest.approx(excess, abs=0.03)


def test_a_run_remembers_its_noise(tmp_path):
    draws = gaussian_run("binomial", path=tmp_path / "run")
    assert (
        "random bits" in str(draws.plan)
        and "binomial" in str(draws.plan)
        and draws.plan.arguments()["noise"] == "binomial"
    )
    again = sgld.load(tmp_path / "run").plan
    assert again.setup.noise == "binomial"
    same = gaussian_run("binomial")
    np.testing.assert_array_equal(draws.position, same.position)
    assert "binomial" not in str(gaussian_run("auto").plan)


@pytest.mark.parametrize(
    ("d", "h", "law"), [(70_000, 0.05, "binomial"), (70_000, 0.5, "normal"), (60_000, 0.05, "normal")]
)  # fmt: skip
def test_counts_are_chosen_for_many_parameters_and_short_steps_and_told(d, h, law):
    posterior = sgld.Posterior(lambda t: -0.5 * jnp.sum(t**2))
    draws = sgld.sample(
        posterior, None, jnp.zeros(d), step_size=h, thin=1, burn_in=0, num_draws=2, num_chains=1, progress=False
    )  # fmt: skip
    assert draws.plan.setup.noise == law
    assert any("random bits" in note for note in draws.plan.notes) == (law == "binomial")


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Descent:
    """No noise at all."""

    num_noises = 0

    def init(self, position):
        return sgld.SGLD().init(position)

    def step(self, state, grad, step_size, noise, *, preconditioner, temperature):
        assert noise.size == 0
        return state._replace(position=state.position + step_size * grad(state.position))


@pytest.mark.parametrize("noise", ["normal", "binomial"])
def test_a_sampler_may_want_no_noise(noise):
    posterior = sgld.Posterior(lambda t: -0.5 * jnp.sum(t**2))
    draws = sgld.sample(
        posterior, None, jnp.ones(3), sampler=Descent(), step_size=0.5, num_draws=4, num_chains=2, thin=1,
        burn_in=0, noise=noise, progress=False,
    )  # fmt: skip
    np.testing.assert_array_equal(draws.position[0, :, 0], [1, 0.5, 0.25, 0.125])


def test_of_so_many_numbers_that_steps_are_blocks_every_due_draw_is_kept():
    posterior = sgld.Posterior(lambda t: -0.5 * jnp.sum(t**2))
    draws = sgld.sample(
        posterior, None, jnp.ones(70_000), sampler=Descent(), step_size=0.5, num_draws=3, num_chains=1, thin=2,
        burn_in=1, progress=False,
    )  # fmt: skip
    np.testing.assert_array_equal(draws.position[0, :, -1], [0.5, 0.125, 0.03125])


@pytest.mark.parametrize(
    ("how", "said"),
    [
        (
            {"noise": "binominal"},
            "noise must be 'auto' or one of normal, binomial. Got 'binominal'",
        ),
        ({"noise": "binomial", "sampler": sgld.ReplicaExchange()}, "with ReplicaExchange"),
    ],
)
def test_refused(how, said):
    posterior = sgld.Posterior(lambda t: -0.5 * jnp.sum(t**2))
    with pytest.raises(UsageError, match=said):
        sgld.sample(posterior, None, jnp.zeros(2), step_size=0.1, progress=False, **how)


def test_exact_chains_are_not_chosen_where_counts_are_asked_for():
    posterior = sgld.Posterior(
        lambda t: -0.5 * t[0] ** 2 / 9 - 0.5 * (t[1] ** 2 * jnp.exp(-t[0]) + t[0])
    )
    how = dict(num_draws=20, num_chains=4, progress=False, max_steps=400)
    exact = sgld.sample(posterior, None, jnp.zeros(2), progress=False, max_steps=400)
    counts = sgld.sample(posterior, None, jnp.zeros(2), noise="binomial", **how)
    assert exact.plan.setup.exact
    assert not counts.plan.setup.exact and counts.plan.setup.noise == "binomial"
