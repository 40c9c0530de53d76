#!/usr/bin/env bash
# Makes a Python environment with the controllers that `make check-long` tests with: os-ken and Faucet, from PyPI.
#
#   scripts/controllers.sh VENV
#
# Nothing is done when it is there already. Nothing of the system is changed.
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
