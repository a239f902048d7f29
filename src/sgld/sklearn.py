"""Bayesian regression and classification as scikit-learn estimators, with a verdict on every fit.

    SGLDClassifier().fit(X, y).predict_proba(X)
    SGLDRegressor().fit(X, y).predict(X, return_std=True)

Importing this module without scikit-learn raises MissingExtra with the command that installs it;
`import sgld` never imports scikit-learn.
"""

from .errors import need

need("sklearn", "sklearn")

from .interfaces.sklearn import SGLDClassifier, SGLDRegressor, draws_of  # noqa: E402

__all__ = ["SGLDClassifier", "SGLDRegressor", "draws_of"]
