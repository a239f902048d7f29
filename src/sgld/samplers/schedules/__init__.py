"""Step sizes and temperatures as functions of the step, counted from 0.

A schedule is any `step -> value` that JAX can trace: an object of this package, an optax
schedule or a plain function. Those of this package are frozen dataclasses whose numbers are
pytree leaves: new numbers need no compilation, and a sweep is a vmap. A step size h
multiplies the gradient of the full-data log posterior,

    theta' = theta + h grad log p(theta | data) + sqrt(2 h T) xi,

whatever scale a paper uses. `from_welling_teh` and `from_learning_rate` convert.

Papers: Robbins & Monro 1951 (the conditions); Welling & Teh 2011 (polynomial decay);
Teh, Thiery & Vollmer 2016 (exponent 1/3); Zhang et al. 2020, "Cyclical stochastic gradient
MCMC for Bayesian deep learning" (cosine cycles).
"""

from __future__ import annotations

from .decay import (
    Constant,
    CosineCycles,
    CycleTemperature,
    Polynomial,
    Power,
    Schedule,
    constant,
    cosine_cycles,
    polynomial,
    polynomial_between,
    power,
)
from .robbins_monro import (
    RobbinsMonro,
    Scaled,
    as_schedule,
    check_values,
    from_learning_rate,
    from_welling_teh,
    robbins_monro,
)

__all__ = [
    "Constant",
    "CosineCycles",
    "CycleTemperature",
    "Polynomial",
    "Power",
    "RobbinsMonro",
    "Scaled",
    "Schedule",
    "as_schedule",
    "check_values",
    "constant",
    "cosine_cycles",
    "from_learning_rate",
    "from_welling_teh",
    "polynomial",
    "polynomial_between",
    "power",
    "robbins_monro",
]

# pickles name these classes by this package, whichever of its modules defines them
for _kind in (Constant, CosineCycles, CycleTemperature, Polynomial, Power, RobbinsMonro, Scaled):
    _kind.__module__ = __name__
