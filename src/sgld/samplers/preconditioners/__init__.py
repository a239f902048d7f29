"""Preconditioners: the matrix D of theta' = theta + h D grad + sqrt(2 h T D) xi.

The contract. Of a matrix: `drift(g)` is D g, `noise(xi)` is D^{1/2} xi with
D^{1/2} (D^{1/2})^T = D, `pullback(g)` is (D^{1/2})^T g. The ideal D is the posterior
covariance. `prepare(layout)` checks it against the position.

Those that adapt (`adapts = True`) keep a memory per chain: `start(d)`, `after(memory, g)`
with g the gradient of the MEAN log density, and `at(memory)` gives the matrix. They adapt
in the burn-in and are then frozen, unless `freeze=False`; `gamma=True` adds the term
Gamma_i = sum_j dD_ij/dtheta_j that a metric needs while it depends on the position.
"""
