"""Contract tests of user-supplied samplers, sources, gradients, preconditioners and schedules.

    from sgld.testing import check_sampler
    print(check_sampler(MySampler()))          # a report, or an AssertionError with one sentence

A sampler is any object with

    num_noises                                  standard normals per coordinate and step: a whole number
    init(position) -> state                     a pytree with `.position` [d]; its shapes never change
    step(state, grad, step_size, noise, *, preconditioner, temperature) -> state

and, if it has a momentum and is to run inside `sgld.ReplicaExchange`,

    exchanged(state, position, change, step_size, preconditioner) -> state
                                                at another position, where the gradient is larger by
                                                `change`: the persistent part of the momentum stays

`grad` is a function of position: the gradient of the log posterior (`grad.log_density` is the
density itself, up to a constant). `noise` has the position's shape ([num_noises, d] if
num_noises is not 1). D = preconditioner has `drift(g)` = D g, `noise(xi)` = D^{1/2} xi and
`pullback(g)` = (D^{1/2})^T g. `step_size` h is the coefficient of the gradient of the
full-data log posterior.

The tests avoid sampling where possible: on a Gaussian target a step is an affine map of state and
noise, so its Jacobians give the stationary distribution exactly.
"""

from .samplers.certify.affine import stationary_covariance
from .samplers.certify.parts import (
    GradientReport,
    PreconditionerReport,
    ScheduleReport,
    check_gradient,
    check_preconditioner,
    check_schedule,
)
from .samplers.certify.sampler import SamplerReport, check_sampler
from .samplers.certify.source import SourceReport, check_source

__all__ = [
    "GradientReport",
    "PreconditionerReport",
    "SamplerReport",
    "ScheduleReport",
    "SourceReport",
    "check_gradient",
    "check_preconditioner",
    "check_sampler",
    "check_schedule",
    "check_source",
    "stationary_covariance",
]
