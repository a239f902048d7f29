"""Parts that cannot run are refused before a finished run is overwritten, and those given again are the same."""

import dataclasses

import jax
import jax.numpy as jnp
import pytest

import sgld
from sgld.errors import RunError, UsageError
from sgld.pytree import as_pytree

GAUSSIAN = sgld.Posterior(lambda t: -0.5 * jnp.sum(t**2))
START = jnp.zeros(2)


class Unregistered(sgld.SGLD):
    """A sampler that JAX takes for a leaf."""


@as_pytree
@dataclasses.dataclass(frozen=True)
class Worded(sgld.SGLD):
    """A sampler with a leaf that is no number."""

    word: str = "fast"


class Flat:
    """A preconditioner without a tree."""

    adapts = False

    def prepare(self, layout):
        return self


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    path = tmp_path_factory.mktemp("own") / "run"
    sgld.sample(GAUSSIAN, None, START, step_size=0.1, num_draws=20, path=path, progress=False)
    return path


@pytest.mark.parametrize(
    "part, said",
    [
        (dict(sampler=Unregistered()), "the sampler Unregistered is no pytree"),
        (dict(sampler=Worded()), "the sampler Worded cannot pass into compiled code"),
        (dict(preconditioner=Flat()), "the preconditioner Flat is no pytree"),
        (dict(step_size=lambda step: 0.1j), "step_size must give real numbers. Got complex64"),
        (dict(keep=lambda t: jax.random.key(0)), r"keep's 'x' has dtype key<fry>"),
        (dict(checkpoint_every="soon"), "checkpoint_every must be positive, in seconds. Got soon"),
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
def stopped(tmp_path, monkeypatch):
    """A run with parts of this package, stopped at its first checkpoint."""
    from sgld.draws.run_directory import RunDirectory

    write = RunDirectory.write_checkpoint

    def interrupted(self, *args):
        write(self, *args)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(RunDirectory, "write_checkpoint", interrupted)
        with pytest.raises(KeyboardInterrupt):
            sgld.sample(
                GAUSSIAN, None, START, sampler=sgld.SGHMC(friction=0.2), step_size=0.1,
                preconditioner=sgld.Diagonal(jnp.ones(2)), num_draws=40, path=tmp_path / "run",
                checkpoint_every=0, progress=False,
            )  # fmt: skip
    return tmp_path / "run"


@pytest.mark.parametrize(
    "given, said",
    [
        (dict(sampler=sgld.SGHMC(friction=0.3)), "sampler is not the sampler"),
        (dict(sampler=sgld.SGLD()), "sampler is not the sampler"),
        (dict(schedule=0.2), "schedule is not the step_size"),
        (dict(temperature=2.0), "temperature is not the temperature"),
        (dict(gradient=sgld.Full()), "gradient is not the gradient"),
        (dict(preconditioner=sgld.Diagonal(jnp.full(2, 2.0))), "preconditioner is not the"),
    ],
)
def test_a_stored_part_that_is_given_again_is_the_same(stopped, given, said):
    with pytest.raises(RunError, match=said):
        sgld.resume(stopped, GAUSSIAN, None, START, progress=False, **given)


def test_what_is_given_again_and_the_same_goes_on(stopped):
    with pytest.raises(UsageError, match="checkpoint_every must be positive"):
        sgld.resume(stopped, GAUSSIAN, None, START, checkpoint_every=-1)
    draws = sgld.resume(
        stopped, GAUSSIAN, None, START, sampler=sgld.SGHMC(friction=0.2), schedule=0.1,
        temperature=1.0, preconditioner=sgld.Diagonal(jnp.ones(2)), progress=False,
    )  # fmt: skip
    assert draws.num_draws == 40
