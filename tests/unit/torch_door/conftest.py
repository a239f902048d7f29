"""Everything in this folder needs PyTorch."""

import pytest


def pytest_itemcollected(item):
    item.add_marker(pytest.mark.torch)
