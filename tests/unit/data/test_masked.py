"""Masked arrays: what stands under a mask is no datum, and NumPy hands it out as if it were."""

import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.distributions import constraints

import sgld
from sgld.data.validate import check_data
from sgld.errors import DataError

Y = np.linspace(-1.0, 1.0, 40)
HOLES = np.ma.masked_array(np.where(np.arange(40) == 7, 1e6, Y), mask=np.arange(40) == 7)
MODEL = sgld.Posterior(
    lambda t: -0.5 * jnp.sum(t**2), lambda t, row: -0.5 * jnp.sum((row["y"] - t) ** 2)
)
LEAVES = sgld.Posterior(lambda t: -0.5 * jnp.sum(t["a"] ** 2))
BOUND = sgld.Posterior(
    lambda t: -jnp.sum(t["s"]), lambda t, row: -t["s"][0] * row["y"] ** 2,
    constraints={"s": constraints.positive},
)  # fmt: skip
SAID = r"masked array whose cell \(7,.* is masked, one of 1; remove such rows"


class Items:
    """Rows one by one, some of them masked; with a shape, as slices."""

    def __len__(self):
        return 40

    def __getitem__(self, i):
        return {"y": HOLES[i : i + 1]}


class Sliced:
    shape, dtype = (40, 1), np.dtype(float)

    def __len__(self):
        return 40

    def __getitem__(self, i):
        return HOLES[:, None][i]


def predicted():
    return sgld.Posterior(
        MODEL.log_prior, MODEL.log_likelihood, predict=lambda t, row: t, predict_at={"y": HOLES}
    )


@pytest.mark.parametrize(
    "call",
    [
        lambda: sgld.sample(MODEL, {"y": HOLES}, 0.0, progress=False),
        lambda: sgld.sample(MODEL, {"y": Y}, HOLES, progress=False),
        lambda: sgld.sample(predicted(), {"y": Y}, 0.0, progress=False),
        lambda: sgld.find_map(MODEL, {"y": HOLES}, 0.0, num_steps=2),
        lambda: sgld.find_map(BOUND, {"y": Y}, {"s": HOLES}, num_steps=2),
        lambda: sgld.SGLDRegressor().fit(Y[:, None], Y).score(Y[:, None], HOLES),
        lambda: sgld.sample(
            MODEL, {"y": Y}, Y, preconditioner=sgld.Diagonal(HOLES), step_size=1e-3
        ),
        lambda: sgld.sample(LEAVES, None, {"a": Y}, preconditioner=sgld.Diagonal({"a": HOLES})),
        lambda: sgld.LowRank(HOLES + 2.0, Y[:, None]),
        lambda: sgld.SGLDRegressor().fit(HOLES[:, None], Y),
        lambda: sgld.SGLDRegressor().fit(Y[:, None], HOLES),
        lambda: sgld.SGLDRegressor().fit(Y[:, None], Y, sample_weight=HOLES + 2.0),
    ],
)
def test_a_masked_cell_is_refused(call):
    with pytest.raises(DataError, match=SAID):
        call()


@pytest.mark.parametrize(
    "items, cell", [(Items(), r"'y' of item 7 of a Items .*\(0,\)"), (Sliced(), "rows 0 to")]
)
def test_a_masked_cell_of_a_data_set_is_refused(items, cell, tmp_path):
    with pytest.raises(DataError, match=cell):
        sgld.open(items, cache=tmp_path)


def test_a_position_without_a_masked_cell_is_an_array():
    mode = sgld.find_map(MODEL, {"y": Y}, np.ma.masked_array(np.ones(2), mask=False), num_steps=2)
    assert mode.position.shape == (2,)


def test_a_mask_without_a_masked_cell_is_an_array():
    held = check_data({"y": np.ma.masked_array(Y, mask=False)})["y"]
    assert type(held) is np.ndarray
    np.testing.assert_allclose(held, Y, rtol=1e-6)


def test_numbers_wider_than_any_of_jax_are_rounded():
    assert check_data(Y.astype(np.longdouble)).dtype == np.float32
