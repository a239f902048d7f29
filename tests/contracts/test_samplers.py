"""Every sampler that comes with the package has one row here."""

import pytest

import sgld
from sgld.testing import check_sampler

ROWS = [
    (sgld.SGHMC(), {"stable_to": 3.7}),
    (sgld.SGHMC(friction=0.5), {"stable_to": 2.9}),
    (sgld.BAOA(), {"order": None, "stable_to": 3.9}),
    (sgld.BAOA(friction=3.0), {"order": None, "stable_to": 3.9}),
    # from rest the second half of the kick has yet to move the position
    (sgld.UBU(), {"stable_to": 3.9, "response": 0.5}),
    (sgld.SGNHT(), {}),
    (sgld.SGNHT(per_parameter=True), {}),
]


@pytest.mark.parametrize(("sampler", "stated"), ROWS, ids=[repr(row[0]) for row in ROWS])
def test_sampler(sampler, stated):
    report = check_sampler(sampler, **stated)
    assert report.is_affine == (not isinstance(sampler, sgld.SGNHT))
