"""The prior per layer against scipy; its patterns are checked before the first step."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import sgld
from sgld.errors import UsageError
from sgld.networks import normal_prior


def weights(rng):
    return {
        "Dense_0": {"kernel": rng.normal(size=(4, 9)), "bias": rng.normal(size=9)},
        "Dense_1": {"kernel": rng.normal(size=(9, 2)), "bias": rng.normal(size=2)},
        "log_sd": rng.normal(),
    }


def exact(position, sds):
    return sum(
        stats.norm.logpdf(leaf, 0, sd).sum()
        for leaf, sd in zip(jax.tree.leaves(position), sds, strict=True)
    )


def test_the_density_is_scipys(rng, x64):
    position = weights(rng)
    # leaves in order: Dense_0.bias, Dense_0.kernel, Dense_1.bias, Dense_1.kernel, log_sd
    cases = [
        (normal_prior(0.7), [0.7] * 5),
        (normal_prior({"Dense_1*": 0.3, "*": 2.0}), [2.0, 2.0, 0.3, 0.3, 2.0]),
        (
            normal_prior({"*.bias": 5.0, "Dense_?.kernel": 1.5, "log_sd": 0.1}),
            [5, 1.5, 5, 1.5, 0.1],
        ),
        (normal_prior(1.2, fan_in=True), [1.2, 1.2 / 2, 1.2, 1.2 / 3, 1.2]),
    ]
    for prior, sds in cases:
        np.testing.assert_allclose(float(prior(position)), exact(position, sds), rtol=1e-12)
        np.testing.assert_allclose(list(prior.sd(position).values()), sds)


def test_gradients_and_compiled_code(rng):
    position = jax.tree.map(lambda a: jnp.asarray(a, jnp.float32), weights(rng))
    prior = normal_prior({"*kernel": 0.5, "*": 2.0})
    slope = jax.grad(lambda p: prior(p))(position)
    np.testing.assert_allclose(
        slope["Dense_1"]["kernel"], -position["Dense_1"]["kernel"] / 0.25, rtol=1e-6
    )
    # numbers are leaves: others compile nothing
    compiled = jax.jit(lambda prior, position: prior(position))
    for scale in (1.0, 3.0):
        got = compiled(normal_prior({"*kernel": scale, "*": 2.0}), position)
        np.testing.assert_allclose(got, exact(position, [2, scale, 2, scale, 2]), rtol=1e-4)
    assert compiled._cache_size() == 1


def test_mixed_precision():
    position = {"a": jnp.ones(3, jnp.bfloat16), "b": jnp.ones(2, jnp.float32)}
    value = normal_prior(1.0)(position)
    assert value.dtype == jnp.float32
    np.testing.assert_allclose(float(value), 5 * stats.norm.logpdf(1.0), rtol=1e-6)


def test_fan_in_of_the_libraries():
    eqx, nnx = pytest.importorskip("equinox"), pytest.importorskip("flax.nnx")
    prior = normal_prior(1.0, fan_in=True)
    cases = [
        (eqx.nn.Linear(16, 3, key=jax.random.key(0)), "weight", 16),
        (eqx.nn.Conv2d(4, 3, kernel_size=3, key=jax.random.key(0)), "weight", 36),
        (eqx.nn.GRUCell(4, 3, key=jax.random.key(0)), "weight_ih", 4),
        ({"in_proj_weight": jnp.ones((6, 2))}, "in_proj_weight", 2),
        (nnx.Linear(16, 3, rngs=nnx.Rngs(0)), "kernel", 16),
        ({"kernel": jnp.ones((3, 3, 4, 2)), "bias": jnp.ones(2)}, "kernel", 36),
    ]
    for layer, name, size in cases:
        assert prior.sd(layer)[name] == pytest.approx(size**-0.5)
        if name == "kernel":
            assert prior.sd(layer)["bias"] == 1
    for name in ("w", "weights", "weight_1", "hidden_weight"):
        with pytest.raises(UsageError, match=rf"fan in of '{name}' \[2, 2\] is not known"):
            prior({name: jnp.ones((2, 2))})


def test_a_bracket_is_an_index():
    prior = normal_prior({"layers[0].w": 1.0, "layers[1]*": 2.0})
    net = {"layers": [{"w": jnp.ones(1)}, {"w": jnp.ones(1)}]}
    assert prior.sd(net) == {"layers[0].w": 1.0, "layers[1].w": 2.0}


@pytest.mark.parametrize(
    ("scales", "message"),
    [
        (0.0, r"scales must be a positive number. Got 0\.0"),
        ({"*": -1.0}, r"scales\['\*'\] must be a positive number. Got -1\.0"),
        ({"*": "wide"}, "Got 'wide'"),
        ({}, "scales is empty"),
        ({3: 1.0}, "patterns of names. Got 3"),
    ],
)
def test_refusals(scales, message):
    with pytest.raises(UsageError, match=message):
        normal_prior(scales)


def test_patterns_are_checked_before_the_first_step(tmp_path):
    data = np.zeros(5, np.float32)
    for scales, message in (
        ({"sloep": 1.0, "*": 1.0}, "scales has the pattern 'sloep'.*Did you mean 'slope'"),
        ({"slope": 1.0}, "scales has no sd for 'offset'"),
    ):
        model = sgld.Posterior(normal_prior(scales), lambda p, d: -((p["slope"] - d) ** 2))
        init = {"slope": 0.0, "offset": 0.0}
        with pytest.raises(UsageError, match=message):
            sgld.sample(model, data, init, path=tmp_path / "run", progress=False)
        assert not (tmp_path / "run").exists()
