#!/usr/bin/env bash
# arviz-stats 0.8.0: stacking weights of subsampled leave-one-out are equal, whatever the models.
# Guess before the run: with 100 of 400 rows the better model gets a weight near 1, as with all rows.
# Seen: elpd differs by 764 and both weights are .5; method="bb-pseudo-bma" gives NaN. No warning.
# Cause: compare() hands the pointwise values of all rows to the optimiser, NaN at rows not taken.
# 1.3.3 (Python 3.12) has the same .5, and raises ValueError for "bb-pseudo-bma".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder/env"
"$folder/env/bin/python" -m pip install --quiet --disable-pip-version-check \
  'arviz-stats[xarray]==0.8.0' 'arviz-base==0.8.2' 'xarray==2026.2.0' 'numpy==2.4.6' 'scipy==1.17.1' 'pandas==3.1.1'
"$folder/env/bin/python" -W ignore - <<'EOF'
import arviz_base, arviz_stats, numpy as np
from scipy.stats import norm

rng = np.random.default_rng(0)
y = rng.normal(1, 1, 400)
t = rng.normal(y.mean(), 0.05, (4, 1000))

def model(slope):
    values = norm.logpdf(y, slope * t[..., None], 1.0)
    return arviz_base.from_dict(
        {"posterior": {"t": t}, "log_likelihood": {"y": values}, "observed_data": {"y": y}}
    )

models = {"right": model(1.0), "wrong": model(3.0)}
whole = arviz_stats.compare({n: arviz_stats.loo(m, pointwise=True) for n, m in models.items()})
some = {
    n: arviz_stats.loo_subsample(m, observations=100, pointwise=True, seed=1)
    for n, m in models.items()
}
part, bayes = arviz_stats.compare(some), arviz_stats.compare(some, method="bb-pseudo-bma")
print("arviz-stats", arviz_stats.__version__)
print("all rows:", dict(whole.weight.round(3)), "subsample:", dict(part.weight.round(3)))
print("elpd_diff of the subsample:", round(part.elpd_diff["wrong"]), "bb-pseudo-bma:", list(bayes.weight))
assert whole.weight["right"] > 0.99 and part.elpd_diff["wrong"] > 700
assert np.allclose(part.weight, 0.5) and bayes.weight.isna().all(), "the behaviour has changed"
EOF
