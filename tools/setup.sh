#!/bin/sh
# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Makes .venv with a Python that is new enough, then hands over to tools/setup.py. Quick when nothing has changed.
set -eu
cd "$(dirname "$0")/.."

new_enough() {
    "$1" -c 'import sys, venv, ensurepip; sys.exit(not (3, 12) <= sys.version_info[:2] <= (3, 14))' 2>/dev/null
}

find_python() {
    for candidate in ${GPUOPS_PYTHON:-} python3 python3.12 python3.13 python3.14 \
        "${PYENV_ROOT:-$HOME/.pyenv}"/versions/*/bin/python3; do
        path=$(command -v "$candidate" 2>/dev/null) || continue
        if new_enough "$path"; then
            echo "$path"
            return
        fi
    done
    echo "setup: no Python 3.12 to 3.14 with venv on PATH or in pyenv;" \
        "install one (apt-get install python3.12-venv, or pyenv install 3.13) or set GPUOPS_PYTHON" >&2
    return 1
}

if ! { [ -x .venv/bin/python ] && new_enough .venv/bin/python; }; then
    python=$(find_python)
    echo "setup: virtual environment .venv with $("$python" --version)"
    rm -rf .venv
    "$python" -m venv .venv
fi
exec .venv/bin/python tools/setup.py
