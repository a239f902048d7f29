"""Every sampler has one row here; and the suite fails samplers that are wrong."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest

import sgld
from sgld.testing import check_sampler, stationary_covariance


@pytest.mark.parametrize(
    ("sampler", "stable_to"),
    [(sgld.SGLD(), 1.99), (sgld.SGLD(None), 1.99), (sgld.SGLD(jnp.array([0.1, 0.5, 1.0])), 1.9)],
    ids=["default", "uncorrected", "corrected"],
)
def test_sampler(sampler, stable_to):
    corrected = not (sampler.noise_correction is None or isinstance(sampler.noise_correction, str))
    report = check_sampler(sampler, stable_to=stable_to, slope_tolerance=0.15)
    assert report.is_affine and len(report.checks) == 10
    assert corrected or report.errors[0] == pytest.approx(0.01 / 0.99, rel=1e-6)
    assert "10 checks passed" in repr(report)


class Momentum(NamedTuple):
    position: Any
    velocity: Any  # in the coordinates of the preconditioner's factor


@dataclass(frozen=True)
class BAOA:
    """As a stranger would write it; `slip` plants a mistake."""

    slip: str = ""
    friction: float = 1.0
    num_noises = 1

    def init(self, position):
        return Momentum(position, jnp.zeros_like(position))

    def step(self, state, grad, step_size, noise, *, preconditioner, temperature):
        delta = jnp.sqrt(step_size)
        q, p = state
        p = p + delta * preconditioner.pullback(grad(q))
        q = q + 0.5 * delta * preconditioner.noise(p)
        decay = jnp.exp(-self.friction * delta)
        variance = temperature * (1 - decay**2)
        if self.slip == "temperature as an sd":
            variance = temperature**2 * (1 - decay**2)
        if self.slip == "no refresh":
            variance = temperature * (1 - decay)
        p = decay * p + jnp.sqrt(variance) * noise
        return Momentum(q + 0.5 * delta * preconditioner.noise(p), p)


class SGHMC:
    """Not a pytree, and in double precision or single."""

    num_noises = 1

    def init(self, position):
        return Momentum(position, jnp.zeros_like(position))

    def step(self, state, grad, step_size, noise, *, preconditioner, temperature):
        D = preconditioner
        v = (1 - 0.1) * state.velocity + step_size * D.drift(grad(state.position))
        v = v + D.noise(jnp.sqrt(2 * 0.1 * step_size * temperature) * noise)
        return Momentum(state.position + v, v)


class Thermostat(NamedTuple):
    position: Any
    velocity: Any
    friction: Any


class SGNHT:
    num_noises = 1

    def __init__(self, power=2):
        self.power = power

    def init(self, position):
        return Thermostat(position, jnp.zeros_like(position), jnp.ones((), position.dtype))

    def step(self, state, grad, step_size, noise, *, preconditioner, temperature):
        delta = jnp.sqrt(step_size)
        q, p, x = state
        p = p + delta * preconditioner.pullback(grad(q)) - delta * x * p
        p = p + jnp.sqrt(2 * temperature * delta) * noise
        q = q + delta * preconditioner.noise(p)
        return Thermostat(q, p, x + delta * (jnp.mean(jnp.abs(p) ** self.power) - temperature))


@pytest.mark.slow
def test_momentum_samplers_pass_as_they_are():
    report = check_sampler(BAOA(), order=None, stable_to=1.0)
    assert report.slope is None and max(report.errors) < 1e-9
    check_sampler(SGHMC(), order=1.0, stable_to=1.0)


def test_thermostats_have_no_law_in_closed_form():
    with pytest.raises(ValueError, match="not affine"):
        stationary_covariance(SGNHT(), 1.0, 0.1)


class Counted(NamedTuple):
    position: Any
    count: Any


@dataclass(frozen=True)
class Bent:
    """SGLD whose state counts steps; `slip` makes it another sampler, far away or later."""

    slip: str = ""
    num_noises = 1

    def init(self, position):
        return Counted(position, jnp.int32(0))

    def step(self, state, grad, step_size, noise, *, preconditioner, temperature):
        q, count, g = state.position, state.count, grad(state.position)
        sd = jnp.sqrt(2 * step_size * temperature) * jnp.ones_like(q)
        match self.slip:
            case "clipped":
                g = jnp.clip(g, -1e5, 1e5)
            case "noise at even steps":
                sd = jnp.where(count % 2 == 0, sd, 0.0)
            case "less noise from step 1000 on":
                sd = jnp.where(count < 1000, sd, 0.9 * sd)
            case "noise 1.01, not affine":
                sd = 1.01 * sd * (1 + 1e-6 * jnp.tanh(q))
        moved = step_size * preconditioner.drift(g) + preconditioner.noise(sd * noise)
        return Counted(q + moved, count + 1)


@pytest.mark.slow
def test_a_sampler_that_counts_is_simulated_too():
    report = check_sampler(Bent())
    assert report.is_affine and report.slope == pytest.approx(1, abs=0.15)
    assert "errors of 1.0% would be seen" in report.checks[-1]


@pytest.mark.parametrize(
    ("slip", "message"),
    [
        ("clipped", r"by 0\.\d+ h D gradient, not 1, where the gradient is 1e\+08"),
        ("noise at even steps", "simulations .* and variances .* where the truth"),
        ("less noise from step 1000 on", "simulations .* and variances .* where the truth"),
        ("noise 1.01, not affine", "simulations .* and variances .* where the truth"),
    ],
)
def test_what_one_step_near_the_mode_does_not_show_is_caught(slip, message):
    with pytest.raises(AssertionError, match=message):
        check_sampler(Bent(slip))


@pytest.mark.slow
def test_slips_of_thermostats_are_caught():
    with pytest.raises(AssertionError, match="simulation"):
        check_sampler(SGNHT(power=1))


@dataclass(frozen=True)
class Slipped:
    """SGLD with a slip, found in public code each."""

    slip: Any = ""
    num_noises = 1

    def init(self, position):
        return Momentum(position, None)

    def step(self, state, grad, step_size, noise, *, preconditioner, temperature):
        h, T, D, q = step_size, temperature, preconditioner, state.position
        sd, drift, xi = jnp.sqrt(2 * h * T), D.drift(grad(q)), D.noise(noise)
        match self.slip:
            case "noise h":
                sd = h * jnp.sqrt(T)
            case "noise sqrt(h)":
                sd = jnp.sqrt(h * T)
            case "no D in noise":
                xi = noise
            case "D twice in noise":
                xi = D.noise(xi)
            case "T as sd":
                sd = jnp.sqrt(2 * h) * T
            case "T on drift":
                sd, drift = jnp.sqrt(2 * h), drift / jnp.maximum(T, 1e-3)
            case "no T":
                sd = jnp.sqrt(2 * h)
            case "eps = 2h":
                drift, sd = 0.5 * drift, jnp.sqrt(h * T)
            case "transposed":
                xi = D.pullback(noise)
            case "draws":
                xi = xi + 1e-3 * next(COUNTER)
        return state._replace(position=q + h * drift + sd * xi)


COUNTER = iter(range(10**9))


@pytest.mark.parametrize(
    ("slip", "message"),
    [
        ("noise h", r"off by -0\.9.* does not tend to .*the noise is of order h where"),
        (
            "noise sqrt(h)",
            r"off by -0\.5 \(too narrow: 0\.5.* does not tend to .*the noise is sqrt\(h T\) xi",
        ),
        ("no D in noise", "change of coordinates"),
        ("D twice in noise", "change of coordinates"),
        (
            "T as sd",
            r"at temperature 0\.5 are off by -0\.5 \(too narrow.*squared: it was used as an sd",
        ),
        ("no T", "temperature 0"),
        ("eps = 2h", "0.5 h D gradient"),
        ("transposed", "change of coordinates"),
        ("draws", "must draw nothing"),
        ("T on drift", "temperature 0"),
    ],
)
def test_slips_are_caught(slip, message):
    with pytest.raises(AssertionError, match=message):
        check_sampler(Slipped(slip))


@pytest.mark.parametrize("slip", ["temperature as an sd", "no refresh"])
def test_slips_of_momentum_samplers_are_caught(slip):
    said = r"BAOA: variances at temperature 0\.5 are off by [-+]"
    said += ".*squared: it was used as an sd" if slip.startswith("temperature") else ""
    with pytest.raises(AssertionError, match=said):
        check_sampler(BAOA(slip), order=None)


def test_stated_order_and_stability_are_held_against_the_sampler():
    with pytest.raises(AssertionError, match="has order 1"):
        check_sampler(sgld.SGLD(None), order=2.0)
    with pytest.raises(AssertionError, match=r"unstable at step size 2\.5"):
        check_sampler(sgld.SGLD(None), stable_to=2.5)
    with pytest.raises(AssertionError, match="stated to be exact"):
        check_sampler(sgld.SGLD(None), order=None)
    with pytest.raises(AssertionError, match="num_noises"):
        check_sampler(object())


def test_stationary_covariance_refuses_unstable_steps():
    with pytest.raises(ValueError, match="unstable"):
        stationary_covariance(sgld.SGLD(None), 1.0, 2.1)
    S = stationary_covariance(sgld.SGLD(None), [1.0, 4.0], 0.1, temperature=2.0, gradient_noise=3.0)
    exact = [(0.4 + 0.03) / (1 - 0.9**2), (0.4 + 0.03) / (1 - 0.6**2)]
    np.testing.assert_allclose(S, np.diag(exact), rtol=1e-12, atol=1e-14)
