"""Every sampler that comes with the package has one row here."""

import pytest

import sgld
from sgld.testing import check_sampler

ROWS = [
    (sgld.SGHMC(), {"stable_to": 3.7}),
    (sgld.BAOA(), {"order": None, "stable_to": 3.9}),
    # from rest the second half of the kick has yet to move the position
    (sgld.UBU(), {"stable_to": 3.9, "response": 0.5}),
    (sgld.SGNHT(), {}),
    pytest.param(sgld.SGNHT(per_parameter=True), {}, marks=pytest.mark.slow),
    (sgld.ReplicaExchange(), {"simulate": False}),
    pytest.param(sgld.ReplicaExchange((1.0, 3.0)), {}, marks=pytest.mark.slow),
]


@pytest.mark.parametrize(
    ("sampler", "stated"), ROWS, ids=lambda value: "" if isinstance(value, dict) else repr(value)
)
def test_sampler(sampler, stated):
    report = check_sampler(sampler, **stated)
    assert report.is_affine == (not isinstance(sampler, (sgld.SGNHT, sgld.ReplicaExchange)))
    if isinstance(sampler, sgld.SGNHT):
        assert "simulation" in report.checks[-1]
