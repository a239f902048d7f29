"""Compiled functions are kept by structure: two types must never share one."""

import contextlib
import importlib
import itertools
import pathlib
import pkgutil
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sgld
from sgld.core import pytrees
from sgld.errors import UsageError
from sgld.samplers.stationary import AffineLaw, Law


def ours():
    """Every type of the package that is a pytree, by its name."""
    for module in pkgutil.walk_packages(sgld.__path__, "sgld."):
        if not module.name.startswith(("sgld.torch", "sgld.interfaces.cli")):
            importlib.import_module(module.name)
    return sorted(pytrees._registered, key=lambda cls: (cls.__module__, cls.__qualname__))


def empty(cls):
    """A structure of the type with nothing in it."""
    instance = object.__new__(cls)
    for name in cls.__dataclass_fields__:
        object.__setattr__(instance, name, None)
    return jax.tree.structure(instance)


def test_structures_of_all_types_differ():
    structures = [(cls, empty(cls)) for cls in ours()]
    assert len(structures) > 40
    for (one, a), (other, b) in itertools.combinations(structures, 2):
        assert a != b, f"{one.__name__} and {other.__name__} are one to a compiled function"


def test_nothing_is_registered_otherwise():
    root = pathlib.Path(sgld.__file__).parent
    named = [p for p in root.rglob("*.py") if "@jax.tree_util.register_dataclass" in p.read_text()]
    assert named == []


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Double:
    by: Any = 2.0

    def __call__(self, step):
        return self.by * jnp.exp(-jnp.float32(step))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Half:
    by: Any = 2.0

    def __call__(self, step):
        return jnp.exp(-jnp.float32(step)) / self.by


def test_types_of_the_users_that_jax_may_mistake_are_told_apart(monkeypatch):
    """Registered as JAX's documents say, they have one structure there: what was compiled goes."""
    released = []
    monkeypatch.setattr(
        pytrees, "release", lambda: (released.append(1), pytrees._user_structures.clear())
    )
    pytrees._user_structures.clear()
    pytrees.release_mistakable(Double(), "auto", 0.1, None)
    pytrees.release_mistakable(Double(3.0))
    assert not released, "numbers are no type"
    same = jax.tree.structure(Double()) == jax.tree.structure(Half())
    pytrees.release_mistakable([Half()])
    assert bool(released) == same
    pytrees.release_mistakable(sgld.BAOA(), sgld.UBU())
    pytrees.release_mistakable(Half())
    assert len(released) == same


@pytest.mark.parametrize("door", ["sample", "check_schedule", "find_map"])
def test_every_door_tells_them_apart(door, monkeypatch):
    released = []
    monkeypatch.setattr(
        pytrees, "release", lambda: (released.append(1), pytrees._user_structures.clear())
    )
    pytrees._user_structures.clear()

    def through(thing):
        if door == "check_schedule":
            sgld.testing.check_schedule(thing, num_steps=10)
        elif door == "sample":
            sgld.sample(_posterior(), None, 0.0, step_size=thing, sampler=object(), progress=False)
        else:
            sgld.find_map(_posterior(), None, 0.0, gradient=thing)

    pytrees.release_mistakable(Double())
    with contextlib.suppress(UsageError, AttributeError):  # no sampler, no gradient estimator
        through(Half())
    assert bool(released) == (jax.tree.structure(Double()) == jax.tree.structure(Half()))


def _posterior():
    return sgld.Posterior(lambda t: -0.5 * t**2)


def test_a_law_is_that_of_its_own_sampler():
    """Seen once in a suite: UBU's law was BAOA's, whose structure JAX took for UBU's."""
    one = np.eye(1)
    law = Law.of(one, one, 0 * one)
    variance = [AffineLaw(law, s).covariance(0.16)[0, 0] for s in (sgld.BAOA(), sgld.UBU())]
    assert variance[0] == pytest.approx(1, abs=1e-9) and variance[1] < 1 - 1e-3


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Near:
    at: Any

    def log_density(self):
        return -0.5 * self.at**2


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Far:
    at: Any

    def log_density(self):
        return -0.5 * (self.at - 50) ** 2


def test_a_position_of_one_type_is_never_sampled_as_another():
    """A layout is compared with its types: what JAX's comparing of structures overlooks."""
    posterior = sgld.Posterior(lambda position: position.log_density())
    how = {"num_draws": 100, "progress": False}
    near = sgld.sample(posterior, None, Near(jnp.array(0.0)), **how).position
    far = sgld.sample(posterior, None, Far(jnp.array(0.0)), **how).position
    assert isinstance(near, Near) and isinstance(far, Far)
    assert abs(near.at.mean()) < 1 and abs(far.at.mean() - 50) < 1
