#!/usr/bin/env bash
# Runs a command that needs PyTorch, after making .venv-torch; where PyTorch cannot be had, one line says why.
#   tests/torch_door.sh tested .venv-torch/bin/python -m pytest -m torch
set -euo pipefail

without() {
  echo "torch door: not $1 ($2)"
  exit 0
}

version=$("${PYTHON:-python3}" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
[[ $version == 3.11 ]] || without "$1" "PyTorch is pinned for Python 3.11. This is $version"
if ! said=$(make --silent .venv-torch/.stamp 2>&1); then
  without "$1" "$(grep -m 1 -i 'error' <<<"$said" || echo 'pip failed')"
fi
"${@:2}"
