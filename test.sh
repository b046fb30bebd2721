#!/usr/bin/env bash
# Runs all tests in a virtual environment of their own. Arguments go to pytest: ./test.sh tests/lattice -k tree
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
source local/environment.sh
exec python -m pytest "$@"
