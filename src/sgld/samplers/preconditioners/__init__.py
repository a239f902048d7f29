"""Preconditioners: the matrix D of theta' = theta + h D grad + sqrt(2 h T D) xi.

A constant matrix offers `drift(g)` = D g, `noise(xi)` = D^{1/2} xi with
D^{1/2} (D^{1/2})^T = D, and `pullback(g)` = (D^{1/2})^T g. The ideal D is the posterior
covariance. `prepare(layout)` checks it against the position.

Adaptive preconditioners (`adapts = True`) keep a memory per chain: `start(d)`, `after(memory, g)`
with g the gradient of the MEAN log density, and `at(memory)`, which gives the matrix. They adapt
in the burn-in and are then frozen, unless `freeze=False`. `gamma=True` adds the term
Gamma_i = sum_j dD_ij/dtheta_j that a metric needs while it depends on the position.
"""
