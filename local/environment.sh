# Sourced by run.sh, test.sh and prepare.sh: puts a virtual environment with the pinned packages on PATH.
# TRANSDUCER_GN_VENV names another place for it; the default is .venv beside this repository's README.
# TRANSDUCER_GN_TORCH names a build of torch, such as cu126, cu130 or cpu (README: which one for which GPU); the default
# is the one of the package index.
# Installing happens once: a stamp holds the checksum of what was installed.

repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
venv=${TRANSDUCER_GN_VENV:-$repository/.venv}

find_python() {
  local candidate
  local check='import ensurepip, sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))'
  for candidate in ${PYTHON:-} python3.11 python3.12 python3.13 python3 python; do
    if "$candidate" -c "$check" 2>/dev/null; then
      echo "$candidate"
      return
    fi
  done
  echo "transducer_gn needs Python 3.11, 3.12 or 3.13 with its venv module; install one, or name it with" \
    "PYTHON=/path/to/python3" >&2
  return 1
}

set_up_environment() {
  local wanted python installed=
  # The path is part of the sum: a venv copied or moved elsewhere does not work and is made anew.
  # Of pyproject.toml only what is installed counts: other settings change nothing in the venv. If one of these commands
  # is killed, the sum is of something else, and what is installed must not be thrown away for it.
  wanted=$(
    set -o pipefail
    {
      cat "$repository/requirements.txt" "$repository/setup.py" &&
        sed '/^\[tool/,$d' "$repository/pyproject.toml" &&
        echo "$repository" "$venv"${TRANSDUCER_GN_TORCH:+ "$TRANSDUCER_GN_TORCH"}
    } | sha256sum | cut -d' ' -f1
  ) || {
    echo "could not find out what must be installed; call again" >&2
    return 1
  }
  [ ! -f "$venv/.installed" ] || read -r installed < "$venv/.installed" || true
  if [ "$installed" != "$wanted" ]; then
    python=$(find_python) || return 1
    echo "Setting up $venv with $($python --version) (once; about two minutes)" >&2
    "$python" -m venv --clear "$venv"
    if [ -n "${TRANSDUCER_GN_TORCH:-}" ]; then
      # First, so that the requirement below is met already: a build has the same version.
      "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "$(grep '^torch==' \
        "$repository/requirements.txt")" --index-url "https://download.pytorch.org/whl/$TRANSDUCER_GN_TORCH" || {
        echo "there is no build $TRANSDUCER_GN_TORCH of this torch; see README.md for those that there are" >&2
        return 1
      }
    fi
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check -r "$repository/requirements.txt"
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation \
      -e "$repository"
    echo "$wanted" > "$venv/.installed.partial"
    mv "$venv/.installed.partial" "$venv/.installed"
  fi
  export PATH="$venv/bin:$PATH"
}

set_up_environment
