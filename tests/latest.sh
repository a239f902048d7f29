#!/usr/bin/env bash
# Run the tests that meet other libraries with what pip installs today, on a newer Python than the pinned one.
#   tests/latest.sh python3.12 ENVIRONMENT TESTS...
set -euo pipefail

python=$1 environment=$2
shift 2
if ! "$python" -c '' 2>/dev/null; then # a pyenv that has the version, and another one selected
  version=$(pyenv versions --bare 2>/dev/null | grep -E "^${python#python}(\.|\$)" | tail -n 1 || true)
  if [[ -z $version ]]; then
    echo "latest: not tested (no $python)"
    exit 0
  fi
  export PYENV_VERSION=$version
fi
"$python" -m venv --clear "$environment"
PIP_CONSTRAINT='' "$environment/bin/python" -m pip install --quiet --no-compile --disable-pip-version-check -e '.[dev,pymc]'
"$environment/bin/python" - <<'EOF'
import sys
from importlib.metadata import version

names = ("jax", "numpy", "scipy", "numpyro", "blackjax", "arviz-stats", "arviz-plots", "xarray", "pymc")
print(f"latest: Python {sys.version.split()[0]},", ", ".join(f"{n} {version(n)}" for n in names), flush=True)
EOF
"$environment/bin/python" -m pytest -n 2 --dist worksteal -m "not slow and not torch" "$@"
