"""The optimisers of `find_map` on a quadratic and on a logistic optimum."""

import jax.numpy as jnp
import numpy as np
import optax
import pytest

import sgld
from sgld.data.memory import InMemory
from sgld.errors import UsageError

rng = np.random.default_rng(2)
N, D = 60, 2
X = (rng.standard_normal((N, D)) * [1.0, 3.0]).astype(np.float32)  # ill-conditioned
Y = (rng.random(N) < 1 / (1 + np.exp(-X @ [1.0, -0.3]))).astype(np.float32)
START = np.array([2.0, -2.0], np.float32)


def squares(t, row):
    x, y = row
    return -0.5 * (y - jnp.dot(x, t)) ** 2


def bernoulli(t, row):
    x, y = row
    eta = jnp.dot(x, t)
    return y * eta - jnp.logaddexp(0.0, eta)


def prior(t):
    return -0.5 * jnp.sum(t**2)


PROBLEMS = {
    "quadratic": sgld.Posterior(prior, squares),
    "logistic": sgld.Posterior(prior, bernoulli),
}
J = X.T.astype(float) @ X + np.eye(D)
TRUTH = {
    "quadratic": np.linalg.solve(J, X.T.astype(float) @ Y),
    "logistic": np.asarray(sgld.find_map(PROBLEMS["logistic"], (X, Y), START).position),
}
METRIC = jnp.asarray(np.linalg.inv(J), jnp.float32)
preconditioned = optax.stateless(lambda g, q: METRIC @ g)


def onto(projection):
    """The last link of a chain: the step ends on the set."""
    return optax.stateless(lambda update, q: projection(q + update) - q)


FULL = {
    "momentum": optax.sgd(1e-3, momentum=0.9),
    "nesterov": optax.sgd(1e-3, momentum=0.9, nesterov=True),
    "adagrad": optax.adagrad(0.5),
    "rmsprop": optax.rmsprop(optax.exponential_decay(0.03, 100, 0.3), decay=0.99),
    "preconditioned": optax.chain(preconditioned, optax.sgd(0.5)),
}


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("name", FULL)
def test_all_rows(name, problem):
    optimizer = FULL[name]
    mode = sgld.find_map(
        PROBLEMS[problem], (X, Y), START, optimizer=optimizer, num_steps=600
    )  # fmt: skip
    np.testing.assert_allclose(mode.position, TRUTH[problem], atol=2e-3)


def test_momentum_is_the_heavy_ball():
    mode = sgld.find_map(
        PROBLEMS["quadratic"], (X, Y), START, optimizer=optax.sgd(1e-3, momentum=0.8),
        num_steps=30, record=1,
    )  # fmt: skip
    q, v = START.astype(float), np.zeros(D)
    for there in mode.path[1:]:
        v = 0.8 * v - 1e-3 * J @ (q - TRUTH["quadratic"])
        q = q + v
        np.testing.assert_allclose(there, q, atol=1e-5)


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize(
    "gradient", [sgld.SVRG(), sgld.SVRG(period=5), sgld.SAGA()], ids=["SVRG", "SVRG 5", "SAGA"]
)
def test_reduced_variance_reaches_the_mode_at_a_constant_step(gradient, problem):
    end = {}
    for estimator in (gradient, sgld.Minibatch()):
        mode = sgld.find_map(
            PROBLEMS[problem], (X, Y), START, optimizer=optax.chain(preconditioned, optax.sgd(0.1)),
            gradient=estimator, batch_size=6, order="independent", num_steps=2000, record=1,
        )  # fmt: skip
        end[estimator] = np.abs(mode.path[-100:] - TRUTH[problem]).max()
    assert end[gradient] < 1e-4 < 1e-2 < end[sgld.Minibatch()]


@pytest.mark.parametrize("record", [4, 7, 30])
def test_recorded_positions_are_every_so_many_steps(record):
    how = dict(optimizer=optax.sgd(1e-3), gradient=sgld.SVRG(period=3), batch_size=7, num_steps=30)
    every = sgld.find_map(PROBLEMS["quadratic"], (X, Y), START, record=1, **how)
    some = sgld.find_map(PROBLEMS["quadratic"], (X, Y), START, record=record, **how)
    none = sgld.find_map(PROBLEMS["quadratic"], (X, Y), START, **how)
    assert len(every.path) == 31 and every.num_steps == some.num_steps == none.num_steps == 30
    np.testing.assert_allclose(some.path, every.path[::record], atol=1e-6)
    np.testing.assert_allclose(some.position, every.path[-1], atol=1e-6)
    np.testing.assert_allclose(none.position, every.path[-1], atol=1e-6)


def test_svrg_steps_are_those_of_the_paper():
    h, period = 5e-4, 4
    posterior, data = PROBLEMS["logistic"], (X, Y)
    mode = sgld.find_map(
        posterior, data, START, optimizer=optax.sgd(h), gradient=sgld.SVRG(period=period),
        batch_size=6, num_steps=13, record=1, seed=3,
    )  # fmt: skip

    source = InMemory.build(data, 6, "reshuffle", 3)

    def rows(q, x, y):
        x = np.asarray(x, float)
        return (np.asarray(y) - 1 / (1 + np.exp(-x @ q))) @ x

    q = center = START.astype(float)
    for k, entry in enumerate(source.chunk((3, 0), 0, 13)):
        part = source.fetch(jnp.asarray(entry)).rows
        g = -q + rows(center, X, Y) + 10 * (rows(q, *part) - rows(center, *part))
        if (k + 1) % period == 0:
            center = q
        q = q + h * g
        np.testing.assert_allclose(mode.path[k + 1], q, atol=1e-5)


def test_control_variates_are_centred_at_the_start():
    mode = sgld.find_map(
        PROBLEMS["quadratic"], (X, Y), START, optimizer=optax.sgd(1e-3), batch_size=6,
        gradient=sgld.ControlVariates(), num_steps=1, record=1,
    )  # fmt: skip
    exact = START - 1e-3 * J @ (START - TRUTH["quadratic"])
    np.testing.assert_allclose(mode.path[1], exact, atol=1e-5)


@pytest.mark.parametrize("problem", PROBLEMS)
def test_the_average_of_the_path_beats_its_end(problem):
    # Polyak & Juditsky 1992: at a constant step the iterates stay noisy, their average does not
    mode = sgld.find_map(
        PROBLEMS[problem], (X, Y), START, optimizer=optax.sgd(1e-3), batch_size=6,
        order="replacement", num_steps=20_000, record=1,
    )  # fmt: skip
    tail = mode.path[5000:] - TRUTH[problem]
    assert np.abs(tail.mean(0)).max() < 0.15 * tail.std(0).max()


@pytest.mark.parametrize("problem", PROBLEMS)
def test_projected_steps_end_at_the_constrained_mode(problem):
    ball = lambda q: optax.projections.projection_l2_ball(q, 0.2)  # noqa: E731
    mode = sgld.find_map(
        PROBLEMS[problem], (X, Y), START, optimizer=optax.chain(optax.sgd(1e-3), onto(ball)),
        num_steps=500, record=1,
    )  # fmt: skip
    q = np.asarray(mode.position, float)
    assert np.all(np.linalg.norm(mode.path[1:], axis=1) < 0.2 + 1e-6)
    assert np.linalg.norm(q) == pytest.approx(0.2, abs=1e-6)
    # at the constrained optimum the gradient is normal to the sphere, and points outwards
    if problem == "quadratic":
        g = -J @ (q - TRUTH["quadratic"])
    else:
        g = -q + (Y - 1 / (1 + np.exp(-X @ q))) @ X
    assert g @ q / np.linalg.norm(g) / 0.2 == pytest.approx(1.0, abs=1e-4)


def test_projection_onto_a_box_is_by_coordinate():
    # the unconstrained mode has a negative entry: the other one is the mode given that it is 0
    optimizer = optax.chain(optax.sgd(1e-3), onto(optax.projections.projection_non_negative))
    mode = sgld.find_map(
        PROBLEMS["quadratic"], (X, Y), np.abs(START), optimizer=optimizer, num_steps=500
    )
    first = X[:, 0] @ Y / J[0, 0]
    assert TRUTH["quadratic"].min() < 0
    np.testing.assert_allclose(mode.position, [first, 0.0], atol=1e-4)


def test_a_gradient_needs_data():
    with pytest.raises(UsageError, match="SVRG needs data"):
        sgld.find_map(sgld.Posterior(prior), None, jnp.zeros(2), gradient=sgld.SVRG())
