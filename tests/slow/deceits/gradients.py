"""Gradients that are not those of the density: jumps, boxes, rounding, stop_gradient, wrong rules."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

import sgld

from .case import Case, bound, moments


def rest(x):
    return -0.5 * jnp.sum(x[1:] ** 2)


def step(numbers, x):
    return -0.5 * x[0] ** 2 + jnp.where(x[0] > numbers[1], numbers[0], 0.0) + rest(x)


def box(numbers, x):
    inside = (x[0] > numbers[0]) & (x[0] < numbers[1])
    return -0.5 * ((x[0] - 0.8) / 0.3) ** 2 + jnp.where(inside, 0.0, -1e4) + rest(x)


def rounded(numbers, x):
    share, cell = numbers
    seen = x[0] + share * (jnp.round(x[0] / cell) * cell - x[0])
    return -0.5 * (seen - 3.0) ** 2 - 0.5 * (x[0] / 5) ** 2 + rest(x)


def stopped(numbers, x):
    held = jax.lax.stop_gradient(x[0])
    return -0.5 * x[0] ** 2 - 0.5 * numbers[0] * (held - numbers[1]) ** 2 + rest(x)


@jax.custom_vjp
def believed(factor, x):
    return -0.5 * x**2


believed.defvjp(lambda f, x: (-0.5 * x**2, (f, x)), lambda kept, g: (None, -kept[0] * kept[1] * g))


def ruled(numbers, x):
    return believed(numbers[0], x[0]) + rest(x)


def wrong_gradients(rng: np.random.Generator, deceit: bool) -> Case:
    """One of five faults in one coordinate; what the density says is the truth."""
    kind, d = (
        str(rng.choice(["step", "box", "rounded", "stopped", "ruled"])),
        int(rng.choice([1, 3])),
    )
    sign, size, place = (
        float(rng.choice([-1.0, 1.0])),
        float(rng.uniform(1.5, 5)),
        float(rng.uniform(-1, 1.2)),
    )
    numbers = {
        "step": (sign * size if deceit else 0.0, place),
        "box": (place / 3, place / 3 + 0.9) if deceit else (-1e3, 1e3),
        "rounded": (1.0 if deceit else 0.0, 0.7 + size / 5),
        "stopped": (size / 2 if deceit else 0.0, 2 * sign),
        "ruled": (size if sign > 0 else 1 / size,) if deceit else (1.0,),
    }[kind]
    function: Callable = {
        "step": step,
        "box": box,
        "rounded": rounded,
        "stopped": stopped,
        "ruled": ruled,
    }[kind]
    x = np.linspace(-40, 40, 800_001) if kind == "rounded" else np.linspace(-10, 10, 400_001)
    if kind == "box":
        x = np.linspace(-3, 4, 400_001)
    found = moments(x, _value(kind, numbers, x))
    start = {"box": place / 3 + 0.45, "rounded": 1.0}.get(kind, 0.1)
    posterior = sgld.Posterior(bound(function, np.array(numbers)))
    init = jnp.asarray([start, *np.zeros(d - 1)], jnp.float32)
    mean, sd = np.array([found[0], *np.zeros(d - 1)]), np.array([found[1], *np.ones(d - 1)])
    return Case(
        f"{kind} {', '.join(f'{n:.2g}' for n in numbers)}, d={d}", posterior, None, init, mean, sd
    )


def _value(kind: str, numbers: tuple[float, ...], x: np.ndarray) -> np.ndarray:
    if kind == "step":
        return -0.5 * x**2 + np.where(x > numbers[1], numbers[0], 0.0)
    if kind == "box":
        return -0.5 * ((x - 0.8) / 0.3) ** 2 + np.where(
            (x > numbers[0]) & (x < numbers[1]), 0, -1e4
        )
    if kind == "rounded":
        seen = x + numbers[0] * (np.round(x / numbers[1]) * numbers[1] - x)
        return -0.5 * (seen - 3) ** 2 - 0.5 * (x / 5) ** 2
    if kind == "stopped":
        return -0.5 * x**2 - 0.5 * numbers[0] * (x - numbers[1]) ** 2
    return -0.5 * x**2
