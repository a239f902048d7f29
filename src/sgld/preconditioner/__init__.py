"""Preconditioners: the matrix D of theta' = theta + h D grad + sqrt(2 h T D) xi.

The contract: `drift(g)` is D g, `noise(xi)` is D^{1/2} xi with D^{1/2} (D^{1/2})^T = D,
`pullback(g)` is (D^{1/2})^T g. The ideal D is the posterior covariance.
"""
