"""Public uses as a reader types them, for a type checker and never run: see test_types.py.

A line that ends in `# refused` must be an error; every other line must be none.
"""

from typing import assert_type

import jax.numpy as jnp
import numpy as np
import optax

import sgld
import sgld.typing
from sgld.diagnostics.gradient_noise import GradientStatistics
from sgld.inference.step_halving import Halving
from sgld.regression.fit import fit
from sgld.results.draws import Prediction
from sgld.results.plan import Plan
from sgld.results.summary import Comparison, Summary
from sgld.results.verdict import Phase, Verdict, Word
from sgld.samplers.schedules import Constant, CosineCycles, Polynomial, Power

posterior = sgld.Posterior(lambda t: -0.5 * t**2, lambda t, x: -0.5 * (x - t) ** 2)
data, init = np.zeros(5), 0.0

# what comes back can be used without looking whether it is there
draws = sgld.sample(posterior, data, init)
assert_type(draws, sgld.Draws)
assert_type(draws.verdict, Verdict)
assert_type(draws.verdict.word, Word)
assert_type(draws.verdict.reasons, tuple[str, ...])
assert_type(draws.plan, Plan | None)
assert_type(draws.phase, Phase | None)
assert_type(draws.summary(), Summary)
assert_type(draws.predict(lambda t, x: t * x, 1.0), Prediction)
assert_type(sgld.resume("run"), sgld.Draws)
assert_type(sgld.load("run"), sgld.Draws)
print(draws.to_arviz().groups)
if draws.verdict.word == "trusted":
    print(draws.mean(), draws.verdict.reasons[0].upper())
if draws.plan is not None:
    sgld.sample(posterior, data, init, **draws.plan.arguments())
print(draws.verdict.wrod)  # refused

mode = sgld.find_map(posterior, data, init, optimizer=optax.adam(1e-2), order="symmetric")
assert_type(mode, sgld.Mode)
assert_type(mode.log_density, float)
assert_type(mode.converged, bool)
assert_type(sgld.laplace(posterior, data, mode), sgld.Draws)
assert_type(sgld.sandwich(posterior, data, draws), sgld.Draws)
reference = sgld.reference(posterior, data, init, method="hmc")
assert_type(reference, sgld.Draws)
found = sgld.compare(draws, reference)
assert_type(found, Comparison)
assert_type(found.names, tuple[str, ...])
assert_type(found.worst_mean, int | None)
assert_type(sgld.step_halving(posterior, data, draws), Halving)
assert_type(sgld.step_halving(posterior, data, draws).verdict, Verdict)
assert_type(sgld.rejection_rate(posterior, data, draws), float)
assert_type(sgld.rejection_rate(posterior, data, 0.0, 0.1), float)
assert_type(sgld.rejection_rate(posterior, data, 0.0, [0.1, 0.2]), np.ndarray)
assert_type(sgld.gradient_statistics(posterior, data, 0.0), GradientStatistics)
q = sgld.bayes_by_backprop(posterior, data, init, family="full-rank", kl_weights="geometric")
assert_type(q, sgld.Variational)
assert_type(q.draws(100), sgld.Draws)
assert_type(q.elbo, float)
assert_type(q.verdict, Verdict)
assert_type(q.family.title, str)
assert_type(fit("visits.csv", "y ~ x", family="poisson"), sgld.Fit)
assert_type(sgld.constant(0.1), Constant)
assert_type(sgld.polynomial(1.0, 1.0, 0.5), Polynomial)
assert_type(sgld.power(1.0, 0.5), Power)
assert_type(sgld.cosine_cycles(0.1, 100), CosineCycles)

# what may be given
sgld.sample(posterior, data)
sgld.sample(posterior, None, {"a": jnp.zeros(3)})
for order in ("reshuffle", "symmetric", "independent", "replacement", "subset", "auto"):
    sgld.sample(posterior, data, init, order=order)
for sampler in (
    sgld.SGLD(), sgld.SGHMC(friction=1.0), sgld.BAOA(friction=1.0), sgld.UBU(), sgld.SGNHT(),
    sgld.ReplicaExchange((1.0, 3.0)),
):  # fmt: skip
    sgld.sample(posterior, data, init, sampler=sampler)
for gradient in (
    sgld.Full(), sgld.Minibatch(), sgld.ControlVariates(), sgld.SVRG(), sgld.SAGA(),
):  # fmt: skip
    sgld.sample(posterior, data, init, gradient=gradient)
    sgld.find_map(posterior, data, init, gradient=gradient)
for D in (
    sgld.Scalar(2.0), sgld.Diagonal(jnp.ones(1)), sgld.Dense(jnp.eye(1)), sgld.RMSprop(),
    sgld.AdaGrad(), sgld.LowRank(jnp.ones(1), jnp.ones((1, 1))),
):  # fmt: skip
    sgld.sample(posterior, data, init, preconditioner=D)
sgld.sample(posterior, data, init, step_size=0.1, temperature=1, batch_size=10, thin=5)
sgld.sample(posterior, data, init, step_size=np.float32(0.1), temperature=jnp.ones(()))
sgld.sample(posterior, data, init, step_size=sgld.power(1.0, 0.5), temperature=lambda step: 1.0)
sgld.sample(posterior, data, init, step_size=optax.cosine_decay_schedule(0.1, 100))
sgld.reference(posterior, data, init, method="metropolis")


class Mine:
    """A sampler of one's own needs no base class."""

    num_noises = 1

    def init(self, position):
        return position

    def step(self, state, grad, step_size, noise, *, preconditioner, temperature):
        return state


sgld.sample(posterior, data, init, sampler=Mine())


def chosen(order: sgld.typing.Order, method: sgld.typing.Method) -> None:
    sgld.sample(posterior, data, init, order=order)
    sgld.reference(posterior, data, init, method=method)


# what may not
sgld.sample(posterior, data, init, order="reshufle")  # refused
sgld.sample(posterior, data, init, sampler="sgld")  # refused
sgld.sample(posterior, data, init, sampler=sgld.SGLD)  # refused
sgld.sample(posterior, data, init, sampler=sgld.Full())  # refused
sgld.sample(posterior, data, init, gradient="minibatch")  # refused
sgld.sample(posterior, data, init, gradient=sgld.Scalar(1.0))  # refused
sgld.sample(posterior, data, init, preconditioner="diagonal")  # refused
sgld.sample(posterior, data, init, preconditioner=sgld.SGLD())  # refused
sgld.sample(posterior, data, init, preconditioner=2.0)  # refused
sgld.sample(posterior, data, init, step_size="small")  # refused
sgld.sample(posterior, data, init, temperature="auto")  # refused
sgld.sample(posterior, data, init, batch_size="all")  # refused
sgld.sample(posterior, data, init, num_draws="many")  # refused
sgld.sample(posterior, data, init, burn_in=0.5)  # refused
sgld.sample(posterior, data, init, thin="none")  # refused
sgld.sample(posterior, data, init, num_chains="four")  # refused
sgld.sample(posterior, data, init, tolerence=0.01)  # refused
sgld.find_map(posterior, data, init, order="auto")  # refused
sgld.find_map(posterior, data, init, optimizer="adam")  # refused
sgld.find_map(posterior, data, init, gradient="auto")  # refused
sgld.reference(posterior, data, init, method="gibbs")  # refused
sgld.compare(draws, q)  # refused
sgld.rejection_rate(posterior, data, draws, preconditioner=2.0)  # refused
sgld.bayes_by_backprop(posterior, data, init, family="mean-field")  # refused
sgld.bayes_by_backprop(posterior, data, init, kl_weights="linear")  # refused
fit("visits.csv", "y ~ x", family="posson")  # refused
fit("visits.csv", "y ~ x", sampler="sghmc")  # refused
Verdict("truested", ())  # refused
