#!/usr/bin/env bash
# Creates a Python environment with the controllers for `make check-long`: os-ken and Faucet, from PyPI.
#
#   scripts/controllers.sh VENV
#
# Does nothing if it exists already. Changes nothing outside of it.
set -euo pipefail

venv=$1
if [ -e "$venv/.complete" ]; then
    exit 0
fi
if ! command -v python3 >/dev/null; then
    echo "controllers: no python3 here" >&2
    exit 1
fi
rm -rf "$venv"
python3 -m venv "$venv"
"$venv/bin/pip" install --quiet --disable-pip-version-check os-ken==3.1.1 eventlet
touch "$venv/.complete"
