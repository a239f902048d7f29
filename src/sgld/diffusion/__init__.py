"""The continuous side of SGLD: stochastic differential equations, their densities, root finding.

A drift f(x, t) and a diffusion sigma(x, t) define dX = f dt + sigma dW. The same two functions
go into `euler_maruyama` (paths) and `fokker_planck` (the density of X at each time). The
Langevin equation that SGLD discretises (handout, eq. 3.5),

    dX = grad log p(X) dt + sqrt(2 T) dW,     with stationary law proportional to p^(1/T),

is the case f = grad log p, sigma = sqrt(2 T); dX = -grad U dt + sigma dW has law exp(-2U/sigma^2).
"""

from .fokker_planck import fokker_planck, fokker_planck_residual
from .markov import markov_evolve, markov_path, stationary_distribution
from .roots import newton, robbins_monro_root
from .sde import brownian_motion, euler_maruyama

__all__ = [
    "brownian_motion",
    "euler_maruyama",
    "fokker_planck",
    "fokker_planck_residual",
    "markov_evolve",
    "markov_path",
    "newton",
    "robbins_monro_root",
    "stationary_distribution",
]
