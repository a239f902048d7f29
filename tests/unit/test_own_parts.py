"""Parts that cannot run are refused before a finished run is overwritten, and those given again are the same."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sgld
from sgld.core.pytrees import as_pytree
from sgld.errors import RunError, UsageError
from sgld.samplers.hmc import HMC

BENT = sgld.Posterior(lambda t: -0.5 * t[0] ** 2 - 0.5 * (t[1] - t[0] ** 2) ** 2 / 0.01)
GAUSSIAN = sgld.Posterior(lambda t: -0.5 * jnp.sum(t**2))
START = jnp.zeros(2)


class Unregistered(sgld.SGLD):
    """A sampler that JAX takes for a leaf."""


@as_pytree
@dataclasses.dataclass(frozen=True)
class Holding(sgld.SGLD):
    """A sampler with a leaf that is no number."""

    words: frozenset = frozenset(["fast"])


class Flat:
    """A preconditioner without a tree."""

    adapts = False

    def prepare(self, layout):
        return self


@as_pytree
@dataclasses.dataclass(frozen=True)
class Inside:
    """A sampler that leaves its steps to another."""

    sampler: Any

    num_noises = 1

    def init(self, position):
        return self.sampler.init(position)

    def step(self, *given, **named):
        return self.sampler.step(*given, **named)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Derived(sgld.SGLD):
    """A sampler that is SGLD but for its name; registered as JAX has it, where words are leaves."""


@as_pytree
@dataclasses.dataclass(frozen=True)
class Hot(sgld.SGLD):
    """SGLD with noise that is too much."""

    def step(self, state, grad, step_size, noise, **given):
        return super().step(state, grad, step_size, 1.5 * noise, **given)


class Later:
    """A preconditioner that is one of ours once it knows the position, and is no pytree itself."""

    def prepare(self, layout):
        return sgld.Diagonal(jnp.ones(layout.dimension)).prepare(layout)


class Rows:
    """A gradient that is another once it knows the rows."""

    remembers = False

    def prepare(self, problem, center):
        return sgld.Minibatch().prepare(problem, center)

    def at(self, problem, x, memory=None):
        raise NotImplementedError


@pytest.mark.parametrize(
    "part",
    [
        dict(preconditioner=Later()),
        dict(preconditioner=sgld.Diagonal(np.ma.array([1.0, 2.0]))),
        dict(preconditioner=sgld.RMSprop(decay=np.array(0.9))),
        dict(sampler=Inside(sgld.SGLD())),
        dict(sampler=Derived()),
        dict(sampler=sgld.ReplicaExchange((1.0, 4.0), sgld.SGLD())),
        dict(gradient=Rows(), data=np.zeros((9, 2), np.float32)),
        dict(gradient=sgld.SVRG(period=np.int64(3)), data=np.zeros((9, 2), np.float32)),
        dict(gradient=sgld.SVRG(period=2**40), data=np.zeros((9, 2), np.float32)),
        dict(step_size=lambda step: jnp.bfloat16(0.1)),
    ],
)
def test_what_can_run_runs(part):
    """What enters compiled code is what a part prepares; words in a part are structure."""
    part = dict(part)
    data = part.pop("data", None)
    model = GAUSSIAN
    if data is not None:
        model = sgld.Posterior(model.log_prior, lambda t, x: -0.5 * jnp.sum((x - t) ** 2))
    how = {"step_size": 0.05, "num_draws": 4, "num_chains": 1, **part}
    assert sgld.sample(model, data, START, progress=False, **how).num_draws == 4


def test_a_class_derived_from_SGLD_keeps_its_own_step():
    """With everything left open, too: neither SGLD's law nor its step, so that no step size makes it right."""
    with pytest.raises(UsageError, match=r"no step size makes Hot follow .* is 1\.5 times"):
        sgld.sample(GAUSSIAN, None, START, sampler=Hot(), progress=False)
    by_hand = sgld.sample(GAUSSIAN, None, START, sampler=Hot(), step_size=0.05, progress=False)
    assert by_hand.verdict.word != "trusted" and by_hand.position.std() > 1.2


@pytest.mark.slow
def test_a_class_derived_from_exact_chains_is_not_taken_for_exact():
    @as_pytree
    @dataclasses.dataclass(frozen=True)
    class Own(HMC):
        pass

    exact = sgld.sample(BENT, None, START, progress=False, max_steps=200).plan.setup
    assert exact.exact
    own = dataclasses.replace(exact, sampler=Own(**vars(exact.sampler)))
    assert not own.exact


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    path = tmp_path_factory.mktemp("own") / "run"
    sgld.sample(GAUSSIAN, None, START, step_size=0.1, num_draws=20, path=path, progress=False)
    return path


@pytest.mark.parametrize(
    "part, said",
    [
        (dict(sampler=Unregistered()), "the sampler Unregistered is not a pytree"),
        (dict(sampler=Holding()), "the sampler Holding cannot be passed to compiled code"),
        (dict(preconditioner=Flat()), "the preconditioner Flat is not a pytree"),
        (dict(step_size=lambda step: 0.1j), "step_size must give real numbers. Got complex64"),
        (dict(keep=lambda t: jax.random.key(0)), r"keep's 'x' has dtype key<fry>"),
        (
            dict(checkpoint_every="soon"),
            "checkpoint_every must be positive, in seconds, or 0. Got 'soon'",
        ),
        (dict(checkpoint_every=[1.0, 2.0]), "checkpoint_every must be positive"),
    ],
)
def test_what_cannot_run_destroys_nothing(finished, part, said):
    with pytest.raises(UsageError, match=said):
        sgld.sample(
            GAUSSIAN, None, START, path=finished, overwrite=True, progress=False,
            **{"step_size": 0.1, **part},
        )  # fmt: skip
    assert sgld.load(finished).num_draws == 20


@pytest.fixture
def stop(tmp_path, monkeypatch):
    """A function that begins a run with parts of this package, and stops it where something is written."""
    from sgld.results.run_directory import RunDirectory

    def begun(where="write_checkpoint", model=GAUSSIAN, start=START, **parts):
        write = getattr(RunDirectory, where)

        def interrupted(self, *args):
            write(self, *args)
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(RunDirectory, where, interrupted)
            with pytest.raises(KeyboardInterrupt):
                sgld.sample(
                    model, None, start, num_draws=40, path=tmp_path / "run", checkpoint_every=0,
                    progress=False, **{"step_size": 0.1, **parts},
                )  # fmt: skip
        return tmp_path / "run"

    return begun


@pytest.fixture
def stopped(stop):
    return stop(sampler=sgld.SGHMC(friction=0.2), preconditioner=sgld.Diagonal(jnp.ones(2)))


@pytest.mark.parametrize(
    "given, said",
    [
        (dict(sampler=sgld.SGHMC(friction=0.3)), "sampler differs from the sampler"),
        (dict(sampler=sgld.SGLD()), "sampler differs from the sampler"),
        (dict(schedule=0.2), "schedule differs from the step_size"),
        (dict(temperature=2.0), "temperature differs from the temperature"),
        (dict(gradient=sgld.Full()), "gradient differs from the gradient"),
        (dict(preconditioner=sgld.Diagonal(jnp.full(2, 2.0))), "preconditioner differs"),
    ],
)
def test_a_stored_part_that_is_given_again_is_the_same(stopped, given, said):
    with pytest.raises(RunError, match=said):
        sgld.resume(stopped, GAUSSIAN, None, START, progress=False, **given)


BEFORE_AND_AFTER = pytest.mark.parametrize("where", ["begin", "write_checkpoint"])  # a plan
LADDER = sgld.ReplicaExchange([1.0, 4.0], sgld.SGLD())


@pytest.mark.parametrize(
    "parts, given",
    [
        (dict(sampler=sgld.SGLD()), dict(sampler=sgld.SGLD())),
        ({}, dict(sampler="auto", gradient="auto", preconditioner="auto")),
        (dict(step_size="auto"), dict(schedule="auto")),
        (dict(preconditioner=sgld.Diagonal([1.0, 2.0])), dict(preconditioner=sgld.Diagonal([1, 2]))),
        (dict(sampler=LADDER), dict(sampler=sgld.ReplicaExchange((1.0, 4.0), sgld.SGLD()))),
        (dict(step_size=np.float64(0.1), temperature=1), dict(schedule=0.1, temperature=1.0)),
        (dict(preconditioner=sgld.RMSprop(decay=np.float32(0.5))), {}),
        (dict(preconditioner=sgld.Diagonal(np.ones(2))), dict(preconditioner=sgld.Diagonal([1, 1]))),
    ],
)  # fmt: skip
@BEFORE_AND_AFTER
def test_the_same_in_other_words_goes_on(stop, parts, given, where):
    """Lists for tuples, numbers of NumPy's, and what was left to the library; stopped before there is a plan, too."""
    draws = sgld.resume(stop(where, **parts), GAUSSIAN, None, START, progress=False, **given)
    assert draws.num_draws == 40


class Factory:
    """A preconditioner that is no pytree, and is one of ours or of the user's once it knows the position."""

    def __init__(self, scale, of):
        self.scale, self.of = scale, of

    def prepare(self, layout):
        return self.of(jnp.full(layout.dimension, self.scale)).prepare(layout)


@as_pytree
@dataclasses.dataclass(frozen=True)
class Own(sgld.Diagonal):
    """A preconditioner of the user's."""

    def prepare(self, layout):
        return self


@pytest.mark.parametrize(
    "of", [lambda s: Own(np.full(2, s)), lambda s: Factory(s, Own), lambda s: Factory(s, sgld.Diagonal)]
)  # fmt: skip
@BEFORE_AND_AFTER
def test_a_part_of_the_users_own_is_the_same_by_what_it_holds(stop, of, where):
    path = stop(where, preconditioner=of(1.0))
    with pytest.raises(RunError, match="preconditioner differs from the preconditioner"):
        sgld.resume(path, GAUSSIAN, None, START, progress=False, preconditioner=of(4.0))
    draws = sgld.resume(path, GAUSSIAN, None, START, progress=False, preconditioner=of(1.0))
    assert draws.num_draws == 40


@BEFORE_AND_AFTER
def test_a_list_by_leaves_comes_back_as_a_list(stop, where):
    model = sgld.Posterior(lambda t: -0.5 * sum(jnp.sum(part**2) for part in t))
    start, D = [jnp.zeros(2), jnp.zeros(3)], sgld.Diagonal([jnp.ones(2), jnp.ones(3)])
    path = stop(where, model, start, preconditioner=D)
    draws = sgld.resume(path, model, None, start, progress=False, preconditioner=D)
    assert draws.num_draws == 40


def test_what_is_given_again_and_the_same_goes_on(stopped):
    with pytest.raises(UsageError, match="checkpoint_every must be positive"):
        sgld.resume(stopped, GAUSSIAN, None, START, checkpoint_every=-1)
    draws = sgld.resume(
        stopped, GAUSSIAN, None, START, sampler=sgld.SGHMC(friction=0.2), schedule=0.1,
        temperature=1.0, preconditioner=sgld.Diagonal(jnp.ones(2)), progress=False,
    )  # fmt: skip
    assert draws.num_draws == 40
