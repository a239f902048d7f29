"""A position as a flat vector and back."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sgld.core.pytrees import Layout, leaf_names
from sgld.errors import UsageError

POSITION = {"w": [jnp.arange(6.0).reshape(2, 3)], "s": jnp.float32(9.0)}


def test_names_shapes_and_places():
    layout = Layout.of(POSITION)
    assert layout.names == ("s", "w[0]") and layout.dimension == 7
    assert layout.element_names()[:3] == ["s", "w[0][0,0]", "w[0][0,1]"]
    assert [layout.locate(i) for i in (0, 1, 6)] == ["s", "w[0]", "w[0]"]
    with pytest.raises(IndexError):
        layout.locate(7)
    assert leaf_names(1.0) == ["x"]


@settings(max_examples=6, deadline=None)
@given(shapes=st.lists(st.lists(st.integers(1, 3), max_size=3), min_size=1, max_size=4))
def test_round_trip(shapes):
    tree = [jnp.full(tuple(shape), i, jnp.float32) for i, shape in enumerate(shapes)]
    layout = Layout.of(tree)
    z = layout.ravel(tree)
    assert z.shape == (layout.dimension,)
    for a, b in zip(layout.unravel(z), tree, strict=True):
        np.testing.assert_array_equal(a, b)
    batch = layout.unravel(jnp.stack([z, z]))
    assert all(a.shape == (2, *b.shape) for a, b in zip(batch, tree, strict=True))


def test_mixed_precision_takes_the_widest():
    layout = Layout.of({"a": jnp.ones(2, jnp.bfloat16), "b": jnp.ones((), jnp.float32)})
    assert layout.dtype == jnp.float32
    back = layout.unravel(layout.ravel({"a": jnp.ones(2, jnp.bfloat16), "b": jnp.ones(())}))
    assert back["a"].dtype == jnp.bfloat16


@pytest.mark.parametrize(
    ("position", "message"),
    [({}, "empty"), ({"n": 0}, "write 0.0 instead of 0"), ({"n": np.arange(3)}, "leaf 'n'")],
)
def test_refusals(position, message):
    with pytest.raises(UsageError, match=message):
        Layout.of(position)


def test_wrong_shapes_are_named():
    layout = Layout.of(POSITION)
    with pytest.raises(UsageError, match=r"'w\[0\]' has shape \(3,\); expected \(2, 3\)"):
        layout.ravel({"w": [jnp.zeros(3)], "s": 0.0})
    with pytest.raises(UsageError, match="structure"):
        layout.ravel({"w": jnp.zeros(3)})


def test_positions_on_the_host_are_parts_of_what_holds_them():
    layout = Layout.of({"a": jnp.zeros((3, 2)), "b": jnp.float32(0), "c": jnp.zeros(4)})
    z = np.arange(5 * 2 * 11, dtype=np.float32).reshape(5, 2, 11)  # [draw, chain, d]
    host, device = layout.unravelled(np.moveaxis(z, 0, 1)), layout.unravel(jnp.moveaxis(z, 0, 1))
    for name, leaf in host.items():
        np.testing.assert_array_equal(leaf, device[name])
        assert np.shares_memory(leaf, z) and not leaf.flags.writeable
    assert z.flags.writeable
