"""Modules of Equinox and Flax as positions: arrays are sampled, all else is carried along."""

from collections import OrderedDict

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sgld
from sgld.core.pytrees import Layout, leaf_names
from sgld.errors import UsageError
from sgld.model import modules as module_of
from sgld.model.modules import Held, refuse_statistics
from sgld.model.prepare import prepare
from sgld.networks import Network, as_module, normal_prior, restore

eqx = pytest.importorskip("equinox")
flax = pytest.importorskip("flax")
from flax import linen, nnx  # noqa: E402

BY_HAND = {
    "step_size": 1e-3, "num_draws": 8, "burn_in": 3, "num_chains": 2, "batch_size": 10,
    "progress": False,
}  # fmt: skip


def table(rows=40):
    rng = np.random.default_rng(1)
    x = rng.normal(size=(rows, 2)).astype(np.float32)
    return x, (x[:, 0] * x[:, 1] > 0).astype(np.int32)


def log_likelihood(net, datum):
    row, label = datum
    return jax.nn.log_softmax(net(row))[label]


def posterior(likelihood=log_likelihood):
    return sgld.Posterior(normal_prior(1.0), likelihood)


class Tied(nnx.Module):
    """Two names for one layer, a list, a dropout with its keys, a function."""

    def __init__(self, rngs):
        self.layers = nnx.List([nnx.Linear(2, 2, rngs=rngs), nnx.Linear(2, 2, rngs=rngs)])
        self.again = self.layers[0]
        self.dropout = nnx.Dropout(0.5, rngs=rngs, deterministic=True)
        self.activation = nnx.tanh

    def __call__(self, row):
        return self.layers[1](self.activation(self.again(self.dropout(row))))


class Buffers(eqx.Module):
    """What is no parameter, in every kind."""

    weight: jax.Array
    table: jax.Array
    mask: np.ndarray
    key: jax.Array
    rate: float
    flag: bool
    act: object

    def __call__(self, row):
        assert self.flag is True and self.rate == 0.5
        return self.act(self.weight * row[self.table]) * jnp.asarray(self.mask, jnp.float32)


def buffers():
    return Buffers(
        jnp.ones(2), jnp.array([1, 0]), np.array([True, False]), jax.random.key(3), 0.5, True,
        jnp.tanh,
    )  # fmt: skip


@pytest.fixture(scope="module")
def run():
    """A network of Equinox and its draws."""
    net = eqx.nn.MLP(2, 2, 3, 1, activation=jnp.tanh, key=jax.random.key(0))
    return net, sgld.sample(posterior(), table(), net, **BY_HAND)


@pytest.mark.slow
def test_an_equinox_network_is_sampled_as_the_same_network_written_as_a_dict(run):
    net, module = run

    def by_hand(p, datum):
        row, label = datum
        hidden = jnp.tanh(p["a"]["weight"] @ row + p["a"]["bias"])
        return jax.nn.log_softmax(p["b"]["weight"] @ hidden + p["b"]["bias"])[label]

    # lists keep the module's order of leaves, which a dict would sort
    plain = [x for layer in net.layers for x in (layer.weight, layer.bias)]

    def listed(p, datum):
        a, b = ({"weight": p[i], "bias": p[i + 1]} for i in (0, 2))
        return by_hand({"a": a, "b": b}, datum)

    hand = sgld.sample(posterior(listed), table(), plain, **BY_HAND)
    for one, other in zip(
        jax.tree.leaves(module.position), jax.tree.leaves(hand.position), strict=True
    ):
        np.testing.assert_array_equal(one, other)
    assert module.names[:2] == ("layers[0].weight[0,0]", "layers[0].weight[0,1]")
    moved = np.asarray(module.position.layers[1].bias)
    assert moved.shape == (2, 8, 2) and np.ptp(moved) > 0


def test_functions_of_draws_are_given_what_can_be_called(run):
    (x, _), (net, draws) = table(), run
    assert draws.position.activation is net.activation
    assert isinstance(as_module(draws.position), eqx.nn.MLP)
    got = draws.predict(lambda n, rows: jax.vmap(n)(rows), x[:3]).mean
    layers = [jax.tree.map(np.asarray, layer) for layer in as_module(draws.position).layers]
    wanted = np.zeros((3, 2))
    for c in range(2):
        for s in range(8):
            h = np.tanh(x[:3] @ layers[0].weight[c, s].T + layers[0].bias[c, s])
            wanted += (h @ layers[1].weight[c, s].T + layers[1].bias[c, s]) / 16
    np.testing.assert_allclose(got, wanted, atol=1e-5)


def test_what_is_no_floating_array_is_static_and_comes_back():
    module = buffers()
    network = Network(module)
    assert leaf_names(network) == ["weight"]
    back = as_module(jax.tree.map(lambda a: 2 * a, network))
    np.testing.assert_array_equal(back.weight, [2.0, 2.0])
    assert back.act is jnp.tanh and back.rate == 0.5 and back.table is module.table
    ready = prepare(posterior(), table(), module)
    assert ready.target.position(ready.start).key is module.key
    # other objects of the same values share compiled code; another value does not
    assert jax.tree.structure(network) == jax.tree.structure(Network(buffers()))
    for part, value in (("table", jnp.array([0, 1])), ("rate", 0.25), ("key", jax.random.key(4))):
        other = eqx.tree_at(lambda m, part=part: getattr(m, part), module, value)
        assert jax.tree.structure(network) != jax.tree.structure(Network(other))


@pytest.mark.slow
def test_an_nnx_module_keeps_shared_weights_shared():
    net = Tied(nnx.Rngs(0))
    layout = Layout.of(Network(net))
    assert layout.names == (
        "again.bias", "again.kernel", "layers[1].bias", "layers[1].kernel",
    )  # fmt: skip
    draws = sgld.sample(posterior(), table(), net, **BY_HAND)
    assert len(draws.names) == 12
    one = as_module(jax.tree.map(lambda a: a[0, 0], draws.position))
    assert one.again is one.layers[0] and one.activation is nnx.tanh
    kernels = draws.mean(lambda n: n.again.kernel[...] - n.layers[0].kernel[...])
    np.testing.assert_array_equal(kernels, np.zeros((2, 2)))


@pytest.mark.slow
def test_nnx_linen_and_equinox_draw_the_same_numbers():
    """One linear layer, of which all three have the same leaves but for order and transposition."""
    kernel, bias = jnp.array([[0.1, -0.2], [0.3, 0.4]]), jnp.array([0.5, -0.5])
    by_nnx = nnx.Linear(2, 2, rngs=nnx.Rngs(0))
    by_nnx.kernel[...], by_nnx.bias[...] = kernel, bias
    dense = linen.Dense(2)
    by_linen = flax.core.freeze({"params": {"kernel": kernel, "bias": bias}})

    def likelihood(params, datum):
        return log_likelihood(lambda row: dense.apply(params, row), datum)

    a = sgld.sample(posterior(), table(), by_nnx, **BY_HAND).position
    b = sgld.sample(posterior(likelihood), table(), by_linen, **BY_HAND).position
    np.testing.assert_allclose(a.kernel[...], b["params"]["kernel"], atol=1e-6)
    np.testing.assert_allclose(a.bias[...], b["params"]["bias"], atol=1e-6)


def test_a_network_beside_a_constrained_scale_is_stored_and_comes_back(tmp_path):
    from numpyro.distributions import constraints

    net = {"net": eqx.nn.Linear(2, 1, key=jax.random.key(0)), "sd": jnp.float32(0.5)}

    def likelihood(p, datum):
        row, label = datum
        error = (label.astype(jnp.float32) - p["net"](row)[0]) / p["sd"]
        return -0.5 * error**2 - jnp.log(p["sd"])

    model = sgld.Posterior(
        normal_prior(1.0), likelihood, constraints={"net": None, "sd": constraints.positive}
    )
    with pytest.raises(UsageError, match=r"start of 'sd' is -1\.0, outside its constraint Pos"):
        sgld.sample(model, table(), {**net, "sd": jnp.float32(-1.0)}, **BY_HAND)
    with pytest.raises(
        UsageError, match=r"constraints name 2 leaves \(net, sd\); the position has"
    ):
        sgld.sample(model, table(), {"net": net["net"], "s": jnp.ones(2)}, **BY_HAND)
    path = tmp_path / "run"
    draws = sgld.sample(model, table(), net, path=path, **BY_HAND)
    assert (draws.position["sd"] > 0).all() and draws.position["net"].weight.shape == (2, 8, 1, 2)
    loaded = sgld.load(path)
    assert set(loaded.position["net"]) == {"weight", "bias"}
    back = restore(loaded, net)
    assert jax.tree.structure(back.position) == jax.tree.structure(draws.position)
    np.testing.assert_array_equal(back.position["net"].weight, draws.position["net"].weight)
    again = sgld.resume(path, model, table(), net)  # as a run that went on gives them
    np.testing.assert_array_equal(again.position["net"].bias, draws.position["net"].bias)
    assert set(sgld.resume(path).position["net"]) == {"weight", "bias"}
    scale = next(row for row in draws.verdict.extra["layers"] if row["name"] == "sd")
    assert scale["mean"] == pytest.approx(draws.position["sd"].mean(), rel=1e-5)
    assert scale["sd"] == pytest.approx(draws.position["sd"].std(), rel=1e-4)
    with pytest.raises(UsageError, match="like does not hold the parameter 'sd'"):
        restore(loaded, {"net": net["net"]})
    wide = {**net, "net": eqx.nn.Linear(3, 1, key=jax.random.key(0))}
    with pytest.raises(
        UsageError, match=r"'net.weight' have shape \(1, 2\), but its shape in like is"
    ):
        restore(loaded, wide)


def test_stored_dicts_keep_their_leaves(tmp_path):
    with pytest.raises(UsageError, match=r"the draws do not hold the parameter 'b\.c'"):
        restore(sgld.Draws.of({"b": {"w": np.zeros((1, 2))}}), {"b": {"w": 0.0, "c": 0.0}})
    parts = {"b": {"w": np.zeros((1, 4))}, "a": np.ones((1, 4))}
    for kind in (flax.core.freeze, OrderedDict):
        path = tmp_path / kind.__name__
        sgld.Draws.of(kind(parts)).save(path)
        found = sgld.load(path).position
        assert found["a"].mean() == 1 and found["b"]["w"].mean() == 0


class Norm(linen.Module):
    @linen.compact
    def __call__(self, x):
        return linen.BatchNorm(use_running_average=True)(linen.Dense(2)(x))


def with_batch_norm():
    norm, state = eqx.nn.make_with_state(eqx.nn.BatchNorm)(2, axis_name="batch", mode="ema")
    linear = eqx.nn.Linear(2, 2, key=jax.random.key(0))
    rngs = nnx.Rngs(0)
    in_nnx = nnx.Sequential(nnx.Linear(2, 2, rngs=rngs), nnx.BatchNorm(2, rngs=rngs))
    variables = Norm().init(jax.random.key(0), jnp.ones((1, 2)))
    return {
        "equinox": ({"a": linear, "b": norm}, r"StateIndex.* in 'b\."),
        "equinox, inside a module": (eqx.nn.Sequential([linear, norm]), r"StateIndex.*'layers\.1"),
        "equinox, the state": ((linear, state), "State"),
        "linen": (variables, "'batch_stats'"),
        "linen, frozen": ({"net": flax.core.freeze(variables)}, "'batch_stats' of Flax in 'net'"),
        "nnx": (in_nnx, r"BatchStat .* in 'layers\.1\.mean'"),
        "nnx, its state": (nnx.state(in_nnx), "BatchStat"),
        "nnx, in a dict": ({"a": in_nnx}, r"BatchStat .* in 'a\.layers\.1\.mean'"),
    }


@pytest.mark.parametrize("case", with_batch_norm())
def test_batch_norm_is_refused(case):
    init, message = with_batch_norm()[case]
    with pytest.raises(UsageError, match=message) as error:
        sgld.sample(posterior(), table(), init, **BY_HAND)
    assert "LayerNorm or GroupNorm" in str(error.value) and "\n" not in str(error.value)


def test_layer_norm_is_not_refused():
    for net in (
        eqx.nn.Sequential([eqx.nn.Linear(2, 2, key=jax.random.key(0)), eqx.nn.LayerNorm(2)]),
        nnx.Sequential(nnx.Linear(2, 2, rngs=nnx.Rngs(0)), nnx.LayerNorm(2, rngs=nnx.Rngs(0))),
    ):
        refuse_statistics(net)
        assert Layout.of(Network(net)).dimension == 10


def test_other_refusals():
    for nothing in (eqx.nn.Lambda(jnp.tanh), nnx.Dropout(0.1, rngs=nnx.Rngs(0))):
        with pytest.raises(UsageError, match="nothing to sample"):
            sgld.sample(posterior(), table(), nothing, **BY_HAND)
    complex_one = eqx.tree_at(lambda m: m.weight, buffers(), jnp.ones(2, jnp.complex64))
    with pytest.raises(UsageError, match="'weight' is complex"):
        Network(complex_one)
    with pytest.raises(UsageError, match="'act' is function, which is not an array"):
        sgld.sample(posterior(), table(), {"act": lambda x: x}, **BY_HAND)
    with pytest.raises(AttributeError, match="is immutable"):
        Network(buffers()).weight = 0.0
    with pytest.raises(AttributeError, match="absent"):
        _ = Network(buffers()).absent


def test_what_is_held_is_brought_to_the_host_once(monkeypatch):
    """Each call of a compiled function asks for the hash of all that is static in its arguments."""
    asked = []
    real = module_of.np.ascontiguousarray
    monkeypatch.setattr(module_of.np, "ascontiguousarray", lambda a: asked.append(a) or real(a))
    one, other, less = (Held(jnp.arange(n, dtype=jnp.float32)) for n in (4, 4, 3))
    assert [hash(one) for _ in range(3)] == 3 * [hash(other)] and one == other != less
    assert len(asked) == 3
    mine = np.zeros(3)
    held = Held(mine)
    before = hash(held)
    mine[0] = 1.0  # the user's own array, which may change, is looked at again
    assert hash(held) != before
