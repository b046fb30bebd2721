#!/usr/bin/env bash
# Runs all checks and all tests in a virtual environment of their own, the tests on all cores.
# With arguments it runs only pytest, to which they go: ./test.sh tests/lattice -k tree
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
source local/environment.sh

# The page is tested in a real browser; where none can be had, those tests are skipped and say so.
install_chromium() {
  if command -v chromium || command -v chromium-browser; then return; fi
  if [ "$(id -u)" != 0 ] || ! command -v apt-get; then return; fi
  { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends chromium; } || true
}

if [ $# -gt 0 ]; then
  exec python -m pytest "$@"
fi
install_chromium > /dev/null 2>&1
ruff check --quiet
ruff format --quiet --check
mypy --no-error-summary
python docs/api/build.py --check
exec python -m pytest -n auto --maxprocesses 8 --dist loadfile
