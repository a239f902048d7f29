"""The suite's flags: strict promotion, keys used once, compiled functions shared by the workers."""

import gc
import json
import os
import shutil
import tempfile
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

import checked_types

_CACHE = "JAX_COMPILATION_CACHE_DIR"
_FROM = "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"
_KEYS = {"laws", "contracts", "golden", "sampler", "data", "gradient"}  # folders of tests
_DURATIONS = Path(__file__).with_name("durations.json")  # seconds of tests of at least 1 s
MAX_FAST_SECONDS = 1.5  # a test that takes longer is for `make test-long`
_measured = defaultdict(float)


if "SGLD_CHECK_TYPES" in os.environ:
    checked_types.install()


def pytest_configure(config):
    if not hasattr(config, "workerinput") and _CACHE not in os.environ:
        # set before the workers start, so that they inherit it
        os.environ[_CACHE] = config.sgld_cache = tempfile.mkdtemp(prefix="sgld-tests-")
    # the programs that tests start, too: JAX would share what took a second, and `sgld` shares all
    os.environ.setdefault(_FROM, "0.05")
    import jax

    jax.config.update("jax_compilation_cache_dir", os.environ[_CACHE])
    jax.config.update("jax_persistent_cache_min_compile_time_secs", float(os.environ[_FROM]))
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)
    jax.config.update("jax_numpy_dtype_promotion", "strict")
    jax.config.update("jax_numpy_rank_promotion", "raise")


def pytest_addoption(parser):
    parser.addoption(
        "--store-durations", action="store_true", help="write what the tests took to durations.json"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Mark a test as long by the seconds that are stored for it."""
    seconds = json.loads(_DURATIONS.read_text())
    for item in items:
        if seconds.get(item.nodeid, 0.0) > MAX_FAST_SECONDS:
            item.add_marker(pytest.mark.long)


def pytest_runtest_logreport(report):
    _measured[report.nodeid] += report.duration


def pytest_sessionfinish(session):
    """Write the seconds of all tests of at least 1 s, for `make durations`."""
    if session.config.getoption("--store-durations") and not hasattr(session.config, "workerinput"):
        seconds = {name: round(took, 1) for name, took in _measured.items() if took >= 1}
        _DURATIONS.write_text(json.dumps(seconds, indent=0, sort_keys=True) + "\n")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Whether keys are used once is looked at where every sampler, gradient and order is run.

    JAX's checker leaves the fast path of every call: a sixth of the suite's seconds if it were on everywhere.
    """
    import jax

    # before 0.9.2 it takes keys[-1] for a key that was used
    checked = jax.__version_info__ >= (0, 9, 2) and not _KEYS.isdisjoint(item.path.parts)
    if jax.config.jax_debug_key_reuse != checked:
        jax.config.update("jax_debug_key_reuse", checked)


def pytest_collection_finish():
    """What is imported and collected stays until the end: no search for garbage looks at it again.

    Compiling makes many objects, and `sgld.core.pytrees` searches whenever it lets go of what was compiled.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 10, 10)


def pytest_unconfigure(config):
    if hasattr(config, "sgld_cache"):
        shutil.rmtree(config.sgld_cache, ignore_errors=True)
        os.environ.pop(_CACHE, None)


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture
def nothing_compiled():
    """Nothing of this package is compiled yet: for a test that counts what is.

    What the posteriors of earlier tests left may be let go of at any new one (`sgld.core.pytrees`), so
    that a count which began before them can go down.
    """
    from sgld.core import pytrees

    pytrees.release()


@pytest.fixture
def x64():
    """Double precision for one test."""
    import jax

    with jax.enable_x64(True):
        yield
