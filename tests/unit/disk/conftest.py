"""`sgld.open` with a cache of each test's own."""

import pytest

import sgld


@pytest.fixture
def opened(tmp_path):
    """`sgld.open` with a cache of the test's own."""
    return lambda data, **given: sgld.open(data, cache=tmp_path / "cache", progress=False, **given)
