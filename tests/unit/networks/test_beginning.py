"""What is given back of a network's run: the draws after its beginning, by numbers and not as copies."""

from unittest.mock import Mock

import jax.numpy as jnp
import numpy as np
import pytest

import sgld
from sgld.draws.plan import Plan
from sgld.draws.setup import Setup
from sgld.problem.problem import Problem
from sgld.run import outcome
from sgld.run.judge_predictions import without_beginning
from sgld.run.sink import Raw


def raw_of(count):
    """Draws whose one number is which they are."""
    z = np.arange(count, dtype=np.float32).reshape(count, 1, 1)
    one = np.arange(count, dtype=np.float64)
    return Raw(z, one, one, failed_at=np.full(1, -1), num_steps=count)


@pytest.mark.parametrize(("count", "most"), [(90, 60), (91, 20), (100, 7)])
def test_the_last_two_thirds_are_given_back_up_to_the_last_draw(count, most):
    setup = Setup(None, None, None, None, burn_in=0, thin=3, num_draws=5, starts=np.zeros((1, 1)))
    raw = raw_of(count)
    late, plan, few = without_beginning(Plan(setup), raw, most)
    begin = -(-count // 3)
    np.testing.assert_array_equal(late.z[:, 0, 0], np.arange(begin, count))
    numbers = few.z[:, 0, 0]
    assert numbers[-1] == count - 1 and numbers[0] >= begin and len(numbers) <= most
    assert plan.setup.num_draws == len(numbers) and plan.setup.burn_in == 3 * numbers[0]
    assert set(np.diff(numbers)) == {plan.setup.thin // 3}
    assert np.shares_memory(late.z, raw.z) and np.shares_memory(few.z, raw.z)


def test_of_many_weights_the_last_draw_is_looked_at_for_the_support(monkeypatch):
    monkeypatch.setattr(outcome, "PIECE", 1)  # as if a draw had millions of numbers
    seen = []
    monkeypatch.setattr(outcome, "_one_row", lambda _, z: seen.append(z) or np.zeros(z.shape[:2]))
    draws = sgld.Draws.of(jnp.zeros((2, 50)))
    z = np.arange(50.0)[None, :, None] * np.ones((2, 1, 1))
    outcome.within_support(Mock(Problem, array=np.asarray), draws, z)
    assert seen[0].shape == (2, 4, 1) and seen[0][0, -1, 0] == 49
