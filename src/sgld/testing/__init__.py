"""Public contract suites: certify a sampler, a source of rows or a gradient estimator of your own.

    from sgld.testing import check_sampler
    print(check_sampler(MySampler()))          # a report, or an AssertionError in a sentence

A sampler is any object with

    num_noises                                  standard normals per coordinate and step
    init(position) -> state                     a pytree with `.position`; the same shapes for ever
    step(state, grad, step_size, noise, *, preconditioner, temperature) -> state

where `grad` is a function of position (the gradient of the log posterior; `grad.log_density` is
the density itself, up to a constant), `noise` has the
position's shape ([num_noises, d] where num_noises > 1), D = preconditioner has `drift(g)` = D g
and `noise(xi)` = D^{1/2} xi, and `step_size` h is the coefficient of the gradient of the
full-data log posterior. Nothing is sampled where that can be avoided: on a Gaussian target
a step is an affine map of state and noise, so its Jacobians give the stationary law exactly.
"""

from .affine import stationary_covariance as stationary_covariance
from .gradient import GradientReport as GradientReport
from .gradient import check_gradient as check_gradient
from .sampler import SamplerReport as SamplerReport
from .sampler import check_sampler as check_sampler
from .source import SourceReport as SourceReport
from .source import check_source as check_source

__all__ = [
    "GradientReport",
    "SamplerReport",
    "SourceReport",
    "check_gradient",
    "check_sampler",
    "check_source",
    "stationary_covariance",
]
