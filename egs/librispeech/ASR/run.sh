#!/usr/bin/env bash
# Every experiment of the paper, from data to report. Any call can be stopped; the same call goes on from there.
# All of it is transducer_gn/commands/run.py; see --help.
set -euo pipefail
recipe=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$recipe/../../../local/environment.sh"
exec python "$recipe/run.py" "$@"
