#!/usr/bin/env bash
# Runs all checks and all tests in a virtual environment of their own, the tests on all cores.
# With arguments it runs only pytest, to which they go: ./test.sh tests/lattice -k tree
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
source local/environment.sh

if [ $# -gt 0 ]; then
  exec python -m pytest "$@"
fi
ruff check --quiet
ruff format --quiet --check
mypy --no-error-summary
python docs/api/build.py --check
exec python -m pytest -n auto --maxprocesses 8 --dist loadfile
