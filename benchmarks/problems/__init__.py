"""Reference posteriors: small models as a user would write them, with what is true of each.

`PROBLEMS[name]()` builds one: a Problem (name, posterior, data, init, truth). All data are bundled
with the package or scikit-learn, or generated with fixed seeds. `STRUCTURED` holds those whose density
has work of its own inside: Gaussian processes, paths in time, a lasso of many rows.
"""

from . import binary, conjugate, gaussian, hierarchical, processes, regression, shapes
from .truth import Marginal, Problem, Truth, fingerprint, stored, truth_of

_ALL = (
    gaussian.gauss2, gaussian.gauss10, gaussian.gauss50, gaussian.gauss200,
    gaussian.gauss_mean10, gaussian.gauss_mean50,
    conjugate.linear200, conjugate.linear10000, conjugate.handout, conjugate.normal_small,
    conjugate.gamma_exponential, conjugate.beta_bernoulli, conjugate.beta_rare,
    binary.logistic_correlated, binary.logistic_rare, binary.logistic_small,
    binary.logistic_large, binary.logistic_separated, binary.breast_cancer,
    binary.diabetes_logistic, binary.probit,
    regression.diabetes_linear, regression.lasso, regression.student_t, regression.poisson,
    regression.rand_poisson, regression.negative_binomial, regression.gamma_regression,
    regression.softmax, regression.ordinal,
    hierarchical.eight_schools_centred, hierarchical.eight_schools_noncentred,
    hierarchical.radon, hierarchical.stochastic_volatility,
    shapes.tied_means, shapes.cauchy_location, shapes.funnel2, shapes.funnel10, shapes.banana,
    shapes.banana_mild, shapes.student_density, shapes.log_gamma, shapes.network,
    shapes.network_output,
)  # fmt: skip
_STRUCTURED = (
    processes.gp_marginal, processes.gp_latent, processes.lasso_many, processes.local_level,
    processes.autoregression, processes.ar_errors, processes.radon85,
)  # fmt: skip
PROBLEMS = {build.__name__: build for build in _ALL}
STRUCTURED = {build.__name__: build for build in _STRUCTURED}

__all__ = [
    "PROBLEMS",
    "STRUCTURED",
    "Marginal",
    "Problem",
    "Truth",
    "fingerprint",
    "stored",
    "truth_of",
]
