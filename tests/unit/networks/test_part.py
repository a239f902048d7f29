"""Parts of a network: what is sampled, what stays, and the exact law of a last layer."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sgld
from sgld.core.pytrees import leaf_names
from sgld.errors import RunError, UsageError
from sgld.inference.record import check_unchanged
from sgld.model.modules import seal
from sgld.networks import as_module, normal_prior, part, restore
from sgld.results.run_directory import RunDirectory

eqx = pytest.importorskip("equinox")
SHORT = {"step_size": 1e-3, "num_draws": 8, "burn_in": 3, "num_chains": 2, "batch_size": 10, "progress": False}  # fmt: skip


def table(rows=120):
    rng = np.random.default_rng(1)
    x = rng.normal(size=(rows, 2)).astype(np.float32)
    return x, (np.sin(2 * x[:, 0]) + 0.5 * rng.normal(size=rows)).astype(np.float32)


def net():
    return eqx.nn.MLP(2, "scalar", 5, 1, activation=jnp.tanh, key=jax.random.key(0))


def log_likelihood(net, row):
    return -2.0 * (row[1] - net(row[0])) ** 2  # noise of sd .5


POSTERIOR = sgld.Posterior(normal_prior(1.0), log_likelihood)


@pytest.mark.parametrize("where, names", [
    ("layers[0]*", ["layers[0].weight", "layers[0].bias"]),
    (["*bias"], ["layers[0].bias", "layers[1].bias"]),
    ("last_layer", ["layers[1].weight", "layers[1].bias"]),
    (["last_layer", "layers[0].bias"], ["layers[0].bias", "layers[1].weight", "layers[1].bias"]),
])  # fmt: skip
def test_the_leaves_that_are_sampled(where, names):
    found = part(net(), where)
    assert [n for n, _ in zip(found._names, jax.tree.leaves(found), strict=True)] == names
    row = jnp.array([0.3, -0.2])
    assert float(found(row)) == float(net()(row))
    moved = jax.tree.map(lambda leaf: leaf + 1, found)
    for name, old, new in zip(
        sgld.core.pytrees.leaf_names(sgld.model.modules.seal(net())),
        jax.tree.leaves(sgld.model.modules.seal(net())),
        jax.tree.leaves(sgld.model.modules.seal(as_module(moved))),
        strict=True,
    ):
        np.testing.assert_array_equal(new, np.asarray(old) + np.float32(name in names))


def test_a_mask_of_a_dict():
    init = {"a": jnp.ones(2), "b": {"c": jnp.zeros(3)}}
    found = part(init, {"a": False, "b": {"c": True}})
    assert found["b"]["c"].shape == (3,) and len(jax.tree.leaves(found)) == 1


@pytest.mark.parametrize("where, said", [
    ("layer[0]*", "Did you mean 'layers"),
    ([], "where is empty"),
    (3, "where must be a pattern"),
    ({"a": True}, "where must be a pattern"),
])  # fmt: skip
def test_what_chooses_nothing_is_refused(where, said):
    with pytest.raises(UsageError, match=said.replace("[", r"\[")):
        sgld.sample(POSTERIOR, table(), net(), where=where, **SHORT)


def test_a_mask_of_a_module_is_made_as_masks_of_modules_are():
    """An activation is a leaf of an Equinox module, too, and no parameter."""
    net = eqx.nn.MLP(2, 1, 3, 1, key=jax.random.key(0))
    nothing = jax.tree.map(lambda _: False, net)
    bias = lambda m: m.layers[1].bias  # noqa: E731
    one = ["layers[1].bias"]
    for mask, chosen in (
        (jax.tree.map(eqx.is_array, net), None),
        (jax.tree.map(lambda _: True, net), None),
        (eqx.tree_at(bias, nothing, True), one),
        (
            eqx.tree_at(bias, jax.tree.map(lambda _: False, eqx.filter(net, eqx.is_array)), True),
            one,
        ),
    ):
        found = leaf_names(part(net, mask))
        assert found == (chosen or leaf_names(seal(net)))
        both = part({"net": net, "sd": jnp.ones(())}, {"net": mask, "sd": False})
        assert leaf_names(both) == [f"net.{name}" for name in found]
    with pytest.raises(UsageError, match="where must be a pattern of names"):
        part(net, jax.tree.map(lambda _: True, net.layers))


def test_masks_of_no_leaf_or_of_half_a_leaf_are_refused():
    init = {"a": jnp.ones(2), "b": jnp.zeros(3)}
    with pytest.raises(UsageError, match="chooses no parameter"):
        part(init, {"a": False, "b": False})
    with pytest.raises(UsageError, match="one True or False for each leaf"):
        part(init, {"a": np.array([True, False]), "b": False})


@pytest.mark.slow
def test_the_rest_of_a_run_stays_as_it_is(tmp_path):
    draws = sgld.sample(
        POSTERIOR, table(), net(), where="layers[0]*", path=tmp_path / "run", **SHORT
    )
    assert draws.names[0] == "layers[0].weight[0,0]" and len(draws.names) == 15
    module = as_module(jax.tree.map(lambda leaf: leaf[0, 0], draws.position))
    np.testing.assert_array_equal(module.layers[1].weight, net().layers[1].weight)
    assert draws.plan.setup.predictions
    back = restore(sgld.load(tmp_path / "run"), part(net(), "layers[0]*"))
    found = back.predict(lambda n, x: jax.vmap(n)(x), table()[0][:3]).mean
    np.testing.assert_array_equal(
        found, draws.predict(lambda n, x: jax.vmap(n)(x), table()[0][:3]).mean
    )


def test_draws_of_a_part_are_not_put_onto_another_trunk(tmp_path):
    position = jax.tree.map(lambda leaf: jnp.stack([leaf] * 6)[None], part(net(), "last_layer"))
    draws = sgld.Draws.of(position)
    loaded = sgld.load(draws.save(tmp_path / "run"))
    other = eqx.tree_at(lambda n: n.layers[0].bias, net(), jnp.ones(5))
    assert restore(loaded, part(net(), "last_layer")).position.layers[0].bias.shape == (5,)
    with pytest.raises(UsageError, match="not sampled have other values in like"):
        restore(loaded, part(other, "last_layer"))
    with pytest.raises(
        UsageError, match=r"do not hold .* give sgld\.networks\.part\(init, where\) of the init"
    ):
        restore(loaded, net())
    saved_again = sgld.load(loaded.save(tmp_path / "again"))
    with pytest.raises(UsageError, match="have other values in like"):
        restore(saved_again, part(other, "last_layer"))
    restore(sgld.Draws.of(loaded.position), part(other, "last_layer"))  # of an older version


def test_the_last_layer_is_a_regression_on_features_with_its_closed_form():
    x, y = table()
    draws = sgld.sample(POSTERIOR, (x, y), net(), where="last_layer", progress=False)
    assert draws.verdict.word == "trusted" and draws.verdict.sd_ratio is not None
    hidden = np.tanh(x @ np.asarray(net().layers[0].weight).T + np.asarray(net().layers[0].bias))
    features = np.column_stack([hidden, np.ones(len(x))])
    covariance = np.linalg.inv(4 * features.T @ features + np.eye(6))
    mean = covariance @ (4 * features.T @ y)
    values, _ = draws.flat()
    sd = np.sqrt(np.diag(covariance))
    np.testing.assert_allclose((values.mean((0, 1)) - mean) / sd, 0, atol=0.15)
    np.testing.assert_allclose(values.std((0, 1)) / sd, 1, atol=0.1)


def test_the_last_layer_of_a_dict_is_the_one_of_the_highest_number():
    """A dict's keys come by the alphabet: Dense_9 after Dense_11."""
    dense = {f"Dense_{n}": {"kernel": jnp.ones(2)} for n in range(12)}
    assert sgld.networks.part(dense, "last_layer")._names == ("Dense_11.kernel",)
    named = {"encoder": {"w": jnp.ones(2)}, "classifier": {"w": jnp.ones(2)}}
    with pytest.raises(UsageError, match=r"have no order: classifier, encoder. Give the name"):
        sgld.networks.part(named, "last_layer")


@pytest.mark.slow
def test_a_part_of_no_network_is_judged_by_its_parameters():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((200, 2)).astype(np.float32)
    y = (x @ np.array([1.0, -1.0]) + rng.standard_normal(200)).astype(np.float32)
    posterior = sgld.Posterior(
        lambda p: -0.5 * jnp.sum(p["beta"] ** 2),
        lambda p, row: -0.5 * ((row[1] - row[0] @ p["beta"]) * jnp.exp(p["tau"])) ** 2,
    )
    start = {"beta": jnp.zeros(2), "tau": jnp.zeros(())}
    draws = sgld.sample(posterior, (x, y), start, where="beta", progress=False)
    assert draws.verdict.word == "trusted" and "predictions" not in draws.verdict.extra
    assert draws.verdict.sd_ratio is not None


def test_a_run_whose_frozen_arrays_are_complex_or_keys_is_kept(tmp_path):
    init = {
        "a": jnp.zeros(3), "f": jnp.ones(3, jnp.complex64), "k": jax.random.key(0), "n": jnp.arange(3),
    }  # fmt: skip
    position = jax.tree.map(lambda leaf: jnp.stack([leaf] * 6)[None], part(init, "a"))
    loaded = sgld.load(sgld.Draws.of(position).save(tmp_path / "run"))
    assert restore(loaded, part(init, "a")).position["a"].shape == (1, 6, 3)
    with pytest.raises(UsageError, match="have other values in like"):
        restore(loaded, part({**init, "f": 1j * init["f"]}, "a"))


def test_a_finished_run_of_a_part_is_not_resumed_with_another_trunk(tmp_path):
    one = {"step_size": 1e-4, "num_draws": 4, "burn_in": 0, "thin": 1, "num_chains": 2}
    init, path = part(net(), "last_layer"), tmp_path / "run"
    sgld.sample(
        POSTERIOR, table(), net(), where="last_layer", sampler=sgld.BAOA(), path=path,
        progress=False, **one,
    )  # fmt: skip
    with pytest.raises(UsageError, match=r"give sgld.networks.part\(init, where\)"):
        sgld.resume(path, POSTERIOR, table(), net(), progress=False)
    asked = json.loads((path / "run.json").read_text())
    with pytest.raises(RunError, match=r"same, which is sgld.networks.part\(init, where\)\.$"):
        check_unchanged(
            RunDirectory(path), asked, {**asked, "init_hash": "another"}
        )  # of one that was stopped
    again = sgld.resume(path, POSTERIOR, table(), init, progress=False)
    assert again.position.layers[1].weight.shape[:2] == (2, 4)
    other = eqx.tree_at(lambda n: n.layers[0].bias, net(), jnp.ones(5))
    with pytest.raises(UsageError, match="have other values in like"):
        sgld.resume(path, POSTERIOR, table(), part(other, "last_layer"), progress=False)
