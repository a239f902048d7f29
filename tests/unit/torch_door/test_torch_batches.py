"""Batches with some rows in every one: unbiased over a pass, by enumeration."""

import numpy as np
import pytest

from sgld.errors import UsageError

torch = pytest.importorskip("torch")

import sgld.torch as st  # noqa: E402

LOSS = torch.tensor([0.5, -1.0, 2.0, 300.0, 0.25, 7.0, -3.0, 1.0])


@pytest.mark.parametrize(("always", "size"), [([], 3), ([3], 2), ([3, 5], 4), (range(8), 2)])
def test_the_weighted_mean_is_unbiased_over_a_pass(always, size):
    batches = st.Batches(8, size, always_in=list(always))
    for _ in range(3):
        means, seen = [], []
        for rows, weight in batches:
            assert set(always) <= set(rows.tolist()) and len(rows) <= size + len(always)
            assert weight.dtype == torch.get_default_dtype()
            means.append((weight * LOSS[rows]).mean())
            seen += rows.tolist()
        assert len(means) == len(batches)
        assert torch.stack(means).mean() == pytest.approx(float(LOSS.mean()), rel=1e-5)
        counts = np.bincount(seen, minlength=8)
        assert all(counts[i] == (len(batches) if i in always else 1) for i in range(8))


def test_passes_are_shuffled_anew_and_seeds_differ():
    order = lambda batches: [tuple(rows.tolist()) for rows, _ in batches]  # noqa: E731
    one, other = st.Batches(40, 4, seed=1), st.Batches(40, 4, seed=2)
    first = order(one)
    assert first != order(one) and first != order(other)
    assert first == order(st.Batches(40, 4, seed=1))


def test_an_optimiser_takes_the_weighted_mean():
    """At T = 0, where a pass of steps is gradient descent: the rows' mean is found."""
    w = torch.nn.Parameter(torch.tensor(0.0))
    y = torch.tensor([1.0, 2.0, 3.0, 50.0, 1.0, 2.0])
    optimizer = st.SGLD([w], step_size=0.01, num_data=6, temperature=0.0, prior_precision=0.0)
    batches = st.Batches(6, 2, always_in=[3])
    for _ in range(200):
        for rows, weight in batches:
            optimizer.zero_grad()
            (weight * 0.5 * (y[rows] - w) ** 2).mean().backward()
            optimizer.step()
    assert float(w.detach()) == pytest.approx(float(y.mean()), rel=0.05)


@pytest.mark.parametrize("always", [[8], [-1], [2, 2], [[1, 2]]])
def test_numbers_of_no_rows_are_refused(always):
    with pytest.raises(UsageError, match="always_in must be numbers of rows from 0 to 7"):
        st.Batches(8, 2, always_in=always)
