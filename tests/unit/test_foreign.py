"""Arguments by the names that other libraries give them."""

import inspect

import jax.numpy as jnp
import numpy as np
import pytest

import sgld
from sgld.core.user_code import FOREIGN_ARGUMENTS
from sgld.errors import UsageError, did_you_mean

GAUSSIAN = sgld.Posterior(lambda t: -0.5 * jnp.sum(t**2))
TABLE = {"x": np.arange(9.0), "y": np.arange(9.0)}
SENTENCES = {
    "num_samples": r"sample takes num_draws, not num_samples\. Got num_samples=100\.$",
    "num_warmup": "takes burn_in, not num_warmup",
    "chains": "takes num_chains, not chains",
    "random_seed": "takes seed, not random_seed",
    "learning_rate": "takes step_size, not learning_rate",
    "num_drws": r"sample takes no num_drws\. Got num_drws=100\. Did you mean 'num_draws'\?",
    "run_dir": "takes path, not run_dir",
    "epochs": "takes max_steps, not epochs",
    "zzz": r"sample takes no zzz\. Got zzz=100\.$",
}


@pytest.mark.parametrize("name", SENTENCES)
def test_a_name_of_another_library_is_answered_with_ours(name):
    with pytest.raises(UsageError, match=SENTENCES[name]):
        sgld.sample(GAUSSIAN, None, 0.0, **{name: 100})


def test_a_value_that_is_long_is_named_by_its_kind():
    with pytest.raises(UsageError, match=r"Got key=ndarray\."):
        sgld.sample(GAUSSIAN, None, 0.0, key=np.zeros(10**6))


def test_rows_by_name_are_led_to_data():
    with pytest.raises(
        UsageError, match=r"sample takes no x\. .*; pass rows in data=, .*data=\{'x': x, \.\.\.\}\."
    ):
        sgld.sample(GAUSSIAN, x=np.zeros(10))


def test_tables_answer_as_well():
    with pytest.raises(UsageError, match="fit takes num_chains, not chains"):
        sgld.fit(TABLE, "y ~ x", chains=2)
    with pytest.raises(UsageError, match="fit takes out, not path"):
        sgld.fit(TABLE, "y ~ x", path="run")
    with pytest.raises(UsageError, match="fit takes out, not run_dir"):
        sgld.fit(TABLE, "y ~ x", run_dir="run")


def test_a_resumed_part_is_given_as_init():
    with pytest.raises(
        UsageError,
        match=r"resume takes no where\. Got where='last_layer'; give sgld\.networks\.part\(init, where\) as init\.$",
    ):
        sgld.resume("run", GAUSSIAN, None, 0.0, where="last_layer")


@pytest.mark.parametrize("given", ["predictions", "run_dir", "keep"])
def test_a_name_that_is_far_from_all_is_not_guessed(given):
    assert did_you_mean(given, ["forest", "verdict", "burn_in", "seed"]) == ""


def test_every_answer_names_an_argument_that_there_is():
    own = inspect.signature(sgld.sample).parameters
    assert set(FOREIGN_ARGUMENTS.values()) <= set(own) and not set(FOREIGN_ARGUMENTS) & set(own)
