"""What is sent to the device, keys, and compiling beside other work."""

import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sgld.core import devices
from sgld.core.devices import compiling, rows_to_device, sent, stream_key


@pytest.fixture
def compiled(monkeypatch):
    """Names of what is compiled from now on."""
    names = []
    monkeypatch.setattr(
        "jax._src.compiler.compile_or_get_cached",
        noting(names, jax._src.compiler.compile_or_get_cached),
    )
    return names


def noting(names, function):
    def noted(backend, computation, *arguments, **named):
        names.append(computation.operation.attributes["sym_name"].value)
        return function(backend, computation, *arguments, **named)

    return noted


@pytest.mark.parametrize("kind", [np.float32, np.int32, np.bool_, jnp.bfloat16])
def test_rows_are_copied_once_and_compile_nothing(compiled, kind, monkeypatch):
    taken = []
    monkeypatch.setattr(devices, "sent", lambda x, **k: taken.append(x) or sent(x, **k))
    values, rows = np.arange(5 * 7 * 3).reshape(5, 7, 3).astype(kind), np.array([4, 0, 2, 2])
    expected = values[rows]
    array = rows_to_device(values, rows)
    values[:] = 0
    assert array.dtype == kind and np.array_equal(np.asarray(array), expected)
    assert compiled == []
    if jax.default_backend() == "cpu":  # whose array is the memory that was filled
        assert array.unsafe_buffer_pointer() == taken[0].ctypes.data


def test_rows_of_no_columns_are_sent():
    assert rows_to_device(np.ones((3, 0), np.float32), np.array([2, 1])).shape == (2, 0)


def test_what_is_sent_is_a_copy_of_this_dtype_and_compiles_nothing(compiled):
    values = np.arange(16.0 * 1024).reshape(-1, 16)  # aligned, so that it could be shared
    array = sent(values, np.float32)
    values[:] = -1
    assert array.dtype == jnp.float32 and float(array[3, 3]) == 51
    compiled.clear()
    whole = np.arange(77, dtype=np.int32)
    same = sent(whole)
    whole[:] = 0
    np.testing.assert_array_equal(np.asarray(same), np.arange(77))
    assert compiled == []
    jnp.asarray(whole[:76])
    assert compiled  # the test can fail


@pytest.mark.parametrize("seed", [0, 1, 2**31 - 1, 2**31, 2**32 - 1])
def test_a_streams_key_is_that_of_two_calls(seed):
    folded = jax.random.fold_in(jax.random.key(seed), 7)
    np.testing.assert_array_equal(
        jax.random.key_data(stream_key(seed, 7)), jax.random.key_data(folded)
    )


def test_what_was_compiled_beside_other_work_is_not_compiled_again(compiled):
    @jax.jit
    def planted_function(x):
        return x * 3

    x, threads = sent(np.ones(5, np.float32)), set()
    compiled.clear()
    with compiling(planted_function, x):
        threads = {thread.name for thread in threading.enumerate()}
    assert "sgld-compiling" in threads or compiled
    assert sum("planted_function" in name for name in compiled) == 1
    assert float(planted_function(x)[0]) == 3
    assert sum("planted_function" in name for name in compiled) == 1


def test_what_cannot_be_compiled_is_answered_where_it_is_called():
    @jax.jit
    def wrong(x):
        raise ValueError("no such thing")

    with compiling(wrong, 1.0):
        pass
    with pytest.raises(ValueError, match="no such thing"):
        wrong(1.0)
