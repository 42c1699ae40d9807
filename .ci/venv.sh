#!/bin/sh
# Makes ./.venv, or keeps the one that is there when it runs and is of the wanted Python.
set -eu

kept_probe='import sys; sys.exit(not ((3, 11) <= sys.version_info[:2] <= (3, 14) and sys.prefix != sys.base_prefix))'
if [ -z "${PYTHON:-}" ] && .venv/bin/python -c "$kept_probe" 2>/dev/null && .venv/bin/python -m pip --version >/dev/null 2>&1; then
    exit 0
fi

python=$(sh .ci/python.sh)
same_probe='import os, sys; sys.exit(os.path.realpath(sys._base_executable) != os.path.realpath(sys.argv[1]))'
if .venv/bin/python -c "$same_probe" "$python" 2>/dev/null && .venv/bin/python -m pip --version >/dev/null 2>&1; then
    exit 0
fi

rm -rf .venv
echo "Making .venv with $python"
"$python" -m venv .venv
