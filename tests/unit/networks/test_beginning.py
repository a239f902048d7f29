"""What is given back of a network's run: the draws after its beginning, by numbers and not as copies."""

from dataclasses import replace
from unittest.mock import Mock

import jax.numpy as jnp
import numpy as np
import pytest

import sgld
from sgld.inference import outcome
from sgld.inference.function_space import without_beginning
from sgld.inference.sink import Raw
from sgld.model.problem import Problem
from sgld.results.plan import Plan, Setup


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


@pytest.mark.parametrize(("most", "given"), [(100, 84), (6, 0)])
def test_of_draws_whose_positions_are_not_all_held_those_that_are_are_given_back(most, given):
    """The predictions of all of them are judged."""
    setup = Setup(None, None, None, None, burn_in=0, thin=3, num_draws=200, starts=np.zeros((1, 1)))
    whole, held = raw_of(250), np.arange(0, 250, 8)
    raw = replace(whole, z=whole.z[::8], held=held)
    late, plan, few = without_beginning(Plan(setup), raw, most, from_ask=not given)
    assert late.step_size[0] == given and late.num_draws == 250 - given and late.z is None
    numbers = few.z[:, 0, 0]
    np.testing.assert_array_equal(few.step_size, numbers)
    assert numbers[-1] == 248 and numbers[0] >= given and few.held is None
    assert len(numbers) == len(held) - -(-given // 8) and plan.setup.thin == 3 * 8
    assert (plan.setup.burn_in, plan.setup.num_draws) == (3 * numbers[0], len(numbers))
    by_hand = Plan(replace(setup, starts=None))
    assert without_beginning(by_hand, raw, 100).few.num_draws == len(held)


def test_of_many_weights_the_last_draw_is_looked_at_for_the_support(monkeypatch):
    monkeypatch.setattr(outcome, "REPORTED_NUMBERS", 1)  # as if a draw had millions of numbers
    seen = []
    monkeypatch.setattr(outcome, "_one_row", lambda _, z: seen.append(z) or np.zeros(z.shape[:2]))
    draws = sgld.Draws.of(jnp.zeros((2, 50)))
    z = np.arange(50.0)[None, :, None] * np.ones((2, 1, 1))
    outcome.within_support(Mock(Problem, array=np.asarray), draws, z)
    assert {z.shape for z in seen} == {(1, 1, 1)}
    assert [float(z[0, 0, 0]) for z in seen] == 2 * [0, 16, 33, 49]
