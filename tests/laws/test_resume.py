"""A run goes on from what is stored: to the same bits, tuning nothing, and only from its own."""

import importlib.util
import json
import linecache
import shutil
import sys
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sgld
from sgld.core.files import read_arrays, write_arrays
from sgld.errors import RunError
from sgld.inference import execute
from sgld.inference.record import own_digest
from sgld.results.run_directory import RunDirectory

RNG = np.random.default_rng(0)
X = RNG.normal(size=(300, 3)).astype(np.float32)
Y = (RNG.random(300) < 1 / (1 + np.exp(-X @ [1.0, -1.0, 0.5]))).astype(np.float32)
POSTERIOR = sgld.Posterior(
    lambda b: -0.5 * jnp.sum(b**2) / 6,
    lambda b, row: row[1] * (row[0] @ b) - jnp.logaddexp(0.0, row[0] @ b),
)
START = jnp.zeros(3)


class Stopped(Exception):
    """As a kill right after a write."""


def stopped(path, **given):
    """A run directory whose run was stopped after its second checkpoint."""
    seen, write = [], RunDirectory.write_checkpoint

    def stop(self, *given):
        write(self, *given)
        seen.append(1)
        if len(seen) == 2:
            raise Stopped

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RunDirectory, "write_checkpoint", stop)
        with pytest.raises(Stopped):
            sample(path, checkpoint_every=1e-9, **given)
    return path


def sample(path, **given):
    return sgld.sample(POSTERIOR, (X, Y), START, path=path, progress=False, **given)


def resume(path, **again):
    return sgld.resume(path, POSTERIOR, (X, Y), START, progress=False, **again)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Mine:
    """A sampler of one's own."""

    scale: float = 1.0
    num_noises = 1

    def init(self, position):
        return sgld.SGLD(None).init(position)

    def step(self, state, grad, step_size, noise, *, preconditioner, temperature):
        return sgld.SGLD(None).step(
            state, grad, self.scale * step_size, noise, preconditioner=preconditioner,
            temperature=temperature,
        )  # fmt: skip


def falling(rate):
    return lambda t: 1e-3 / (1 + rate * jnp.asarray(t, jnp.float32))


HAND = {"step_size": 1e-3, "num_draws": 4000}
DENSE = sgld.Dense(np.linalg.inv(60 * np.cov(X, rowvar=False) + np.eye(3) / 3))
LOW_RANK = sgld.LowRank(np.full(3, 0.02), 0.01 * np.ones((3, 1)))
KINDS = {
    "everything left open": ({}, {}),
    "control variates": ({"gradient": sgld.ControlVariates(), "batch_size": 20}, {}),
    "Dense": ({"preconditioner": DENSE}, {}),
    "LowRank": ({**HAND, "step_size": 0.05, "preconditioner": LOW_RANK, "batch_size": 50}, {}),
    "RMSprop": ({**HAND, "preconditioner": sgld.RMSprop()}, {}),
    "a sampler of one's own": ({**HAND, "sampler": Mine()}, {"sampler": Mine()}),
    "a schedule of one's own": (
        {"step_size": falling(1e-4), "num_draws": 4000}, {"schedule": falling(1e-4)},
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_a_stopped_run_goes_on_to_the_same_bits_and_tunes_nothing(tmp_path, monkeypatch, kind):
    given, again = KINDS[kind]
    whole = sample(tmp_path / "whole", **given)
    stopped(tmp_path / "stopped", **given)

    def tuned(*arguments):
        raise AssertionError("a resumed run was tuned again")

    monkeypatch.setattr(execute, "make_plan", tuned)
    draws = resume(tmp_path / "stopped", **again)
    np.testing.assert_array_equal(draws.position, whole.position)
    assert draws.verdict.to_dict() == whole.verdict.to_dict()
    assert draws.info["plan"] == whole.info["plan"]


@pytest.mark.parametrize(
    ("given", "again", "sentence"),
    [
        ({"sampler": Mine(), **HAND}, {}, "user-supplied sampler, .* sampler=..."),
        ({"sampler": Mine(), **HAND}, {"sampler": Mine(2.0)}, "sampler differs from the sampler"),
        ({"step_size": falling(1e-4)}, {}, "user-supplied step_size, .* schedule=..."),
        (
            {"step_size": falling(1e-4)},
            {"schedule": falling(2e-4)},
            "schedule differs from the step_size",
        ),
    ],
)
def test_what_was_ones_own_is_asked_for_and_held_against_the_first(
    tmp_path, given, again, sentence
):
    path = stopped(tmp_path / "run", **{"num_draws": 4000, **given})
    with pytest.raises(RunError, match=sentence):
        resume(path, **again)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Hotter(Mine):
    """A sampler with a number that is structure, and shows at other temperatures alone."""

    power: float = field(default=0.5, metadata={"static": True})

    def step(self, state, grad, step_size, noise, *, preconditioner, temperature):
        return super().step(
            state, grad, step_size, noise * temperature ** (self.power - 0.5),
            preconditioner=preconditioner, temperature=temperature,
        )  # fmt: skip


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Own:
    """A preconditioner of one's own, whose one number is structure."""

    scale: float = field(default=1.0, metadata={"static": True})
    adapts = False

    def prepare(self, layout):
        return self

    def drift(self, gradient):
        return self.scale * gradient

    def noise(self, noise):
        return self.scale**0.5 * noise

    pullback = noise

    def scaled(self, share):
        return Own(self.scale * share)


@pytest.mark.parametrize(
    ("name", "one", "other"),
    [("sampler", Hotter(), Hotter(power=0.75)), ("preconditioner", Own(), Own(0.25))],
)
def test_a_number_that_is_structure_is_held_against_the_first(tmp_path, name, one, other):
    path = stopped(tmp_path / "run", **{"num_draws": 4000, **HAND, name: one})
    with pytest.raises(RunError, match=f"{name} differs from the {name}"):
        resume(path, **{name: other})
    assert resume(path, **{name: one}).num_draws == 4000


def test_the_code_of_ones_own_class_is_held_against_the_first_but_for_comments(tmp_path):
    """What no trace shows: of preconditioners and gradients nothing is traced."""
    said = []
    for number, note in (("2.0", ""), ("2.0", "  # twice"), ("3.0", "")):
        text = f"import jax\n\n\n@jax.tree_util.register_static\nclass Part:\n    def drift(self, g):\n        return {number} * g{note}\n"
        (tmp_path / "parts.py").write_text(text)
        linecache.checkcache()
        spec = importlib.util.spec_from_file_location("parts", tmp_path / "parts.py")
        module = importlib.util.module_from_spec(spec)
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(sys.modules, "parts", module)
            spec.loader.exec_module(module)
            said.append(own_digest(None, "preconditioner", module.Part()))
    assert said[0] == said[1] != said[2]


def inside(mean):
    """A model whose numbers are bound to a function that is compiled by itself."""
    part = jax.jit(lambda b: -0.5 * jnp.sum((b - mean) ** 2) / 6)
    return sgld.Posterior(part, POSTERIOR.log_likelihood)


def test_numbers_inside_compiled_functions_are_held_against_the_first(tmp_path, monkeypatch):
    monkeypatch.setitem(globals(), "POSTERIOR", inside(np.zeros(3, np.float32)))
    weigh = lambda a: jax.jit(lambda b: b @ a)  # noqa: E731
    path = stopped(tmp_path / "run", keep=weigh(np.ones(3, np.float32)), **HAND)
    again = {"progress": False, "keep": weigh(np.ones(3, np.float32))}
    with pytest.raises(RunError, match="other values of the model"):
        sgld.resume(path, inside(np.ones(3, np.float32)), (X, Y), START, **again)
    with pytest.raises(RunError, match="other values of init"):
        sgld.resume(path, POSTERIOR, (X, Y), START + 1, **again)
    with pytest.raises(RunError, match="begun with a function as keep, and now got keep='moments'"):
        resume(path, keep="moments")
    with pytest.raises(RunError, match="another keep of the same shapes"):
        resume(path, keep=weigh(2 * np.ones(3, np.float32)))
    same = inside(np.zeros(3, np.float32))
    assert sgld.resume(path, same, (X, Y), START, **again).num_draws == HAND["num_draws"]


def edited(path):
    with np.load(path / "setup.npz") as file:
        arrays = {name: file[name] for name in file.files}
    arrays["starts"] = arrays["starts"] + 1
    np.savez(path / "setup.npz", **arrays)


def truncated(path):
    content = (path / "setup.npz").read_bytes()
    (path / "setup.npz").write_bytes(content[: len(content) // 2])


def foreign(path):
    other = stopped(path.with_name("other"), **HAND, seed=7)
    shutil.copy(other / "setup.npz", path / "setup.npz")


def naming_code(path):
    head, arrays = read_arrays(path / "setup.npz")
    head["plan"]["fields"]["setup"]["fields"]["sampler"] = {
        "class": "subprocess.Popen", "fields": {"args": "true"},
    }  # fmt: skip
    write_arrays(path / "setup.npz", head, arrays)


def of_the_old_format(path):
    asked = json.loads((path / "run.json").read_text())
    del asked["seal"]
    (path / "run.json").write_text(json.dumps(asked))


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (edited, "setup.npz .*was damaged"),
        (truncated, "setup.npz cannot be read"),
        (foreign, "setup.npz belongs to another run"),
        (naming_code, "subprocess.Popen is not known"),
        (of_the_old_format, "written by another version of sgld"),
    ],
)
def test_a_setup_that_is_not_the_runs_own_is_refused(tmp_path, damage, sentence):
    path = stopped(tmp_path / "run", **HAND)
    damage(path)
    with pytest.raises(RunError, match=sentence):
        resume(path)


OTHER_JAX = {"jax": "0.8.0", "jaxlib": "0.8.0"}


def begun_under(path, **changes):
    """Rewrite run.json and the checkpoint as another version of JAX would have left them."""
    directory = RunDirectory(path)
    head, arrays = directory.read_checkpoint()
    with directory:
        directory.write_checkpoint({**head, "kernel": "other last bits"}, arrays)
    now = directory.begun()["versions"] | OTHER_JAX
    keep = directory.begun()["keep"]
    keep = keep and {**keep, "hash": "what another version prints"}
    directory.add(versions=now, model_hash="what another version prints", keep=keep, **changes)


@pytest.mark.parametrize("kind", ["everything left open", "a sampler of one's own"])
def test_a_run_of_another_jax_is_resumed_by_the_values_of_its_model(tmp_path, kind):
    """What JAX prints of a function, and last bits, differ between versions; values do not."""
    given, again = KINDS[kind]
    begun_under(stopped(tmp_path / "run", **given))
    draws = resume(tmp_path / "run", **again)
    assert any("jax 0.8.0 before" in note for note in draws.plan.notes)
    assert draws.num_draws >= 1000


OTHER_MODELS = {
    "a wider prior": (lambda b: -0.5 * jnp.sum(b**2) / 9, None),
    "rows that do not fit left out": (None, lambda ll, row: jnp.where(row[0][0] > 1.5, 0.0, ll)),
    "a bounded likelihood": (None, lambda ll, row: jnp.maximum(ll, -1.0)),
}


@pytest.mark.parametrize("model", OTHER_MODELS)
def test_a_run_of_another_jax_refuses_another_model(tmp_path, model):
    begun_under(stopped(tmp_path / "run"))
    prior, changed = OTHER_MODELS[model]
    likelihood = POSTERIOR.log_likelihood
    other = sgld.Posterior(
        prior or POSTERIOR.log_prior,
        likelihood if changed is None else lambda b, row: changed(likelihood(b, row), row),
    )
    with pytest.raises(RunError, match="begun with other values of the model"):
        sgld.resume(tmp_path / "run", other, (X, Y), START, progress=False)


def test_a_run_of_another_jax_refuses_another_function_as_keep(tmp_path):
    begun_under(stopped(tmp_path / "run", keep=lambda b: {"twice": 2 * b}))
    with pytest.raises(RunError, match="begun with another keep of the same shapes"):
        resume(tmp_path / "run", keep=lambda b: {"twice": 2.02 * b})
    draws = resume(tmp_path / "run", keep=lambda b: {"twice": b + b})
    assert draws.position["twice"].shape[-1] == 3


def test_without_stored_values_the_text_of_a_model_decides(tmp_path):
    """Runs of the first versions store no values."""
    begun_under(stopped(tmp_path / "run"), model_values=None)
    with pytest.raises(RunError, match="begun with other values of the model"):
        resume(tmp_path / "run")


def test_a_run_that_goes_on_elsewhere_says_so(tmp_path):
    path = stopped(tmp_path / "run", **HAND)
    RunDirectory(path).add(machine="a ship's computer")
    draws = resume(path)
    assert any("a ship's computer before" in note for note in draws.info["plan"]["notes"])


def test_a_loaded_run_holds_its_plan(tmp_path):
    draws = sample(tmp_path / "run", num_draws=200)
    plan = sgld.load(tmp_path / "run").plan
    assert plan is not None and plan.describe() == draws.plan.describe()
    found = sgld.step_halving(POSTERIOR, (X, Y), sgld.load(tmp_path / "run"))
    assert found.draws.num_draws == 200
