#!/bin/sh
# Prints the path of a Python 3.11-3.14 that can make virtual environments, or says on stderr which one
# command installs what is missing. `PYTHON` names an interpreter to use instead of searching.
# Version managers put shims on the PATH that exist but do not run, so each candidate is run, not just found.

probe='import sys; print(sys.executable) if (3, 11) <= sys.version_info[:2] <= (3, 14) else sys.exit(1)'
parts='import ensurepip, venv'

names='python3.14 python3.13 python3.12 python3.11 python3 python'
if [ "$(uname -s)" = Darwin ]; then
    # One dependency has no macOS wheel for 3.14 yet and would need a compiler, so 3.14 comes last there.
    names='python3.13 python3.12 python3.11 python3 python3.14 python'
    install_python='brew install python@3.13'
else
    install_python='apt-get install -y python3 python3-venv   (Debian 12 or newer, Ubuntu 23.04 or newer; as root)'
fi

if [ -n "${PYTHON:-}" ]; then
    found=$("$PYTHON" -c "$probe" 2>/dev/null) || {
        echo "PYTHON=$PYTHON is not a Python 3.11-3.14 that runs. Leave PYTHON unset to search for one, or: $install_python" >&2
        exit 1
    }
    if "$found" -c "$parts" 2>/dev/null; then echo "$found"; exit 0; fi
    incomplete=$found
else
    incomplete=
    for name in $names; do
        # One name can stand in several directories, and the first of them may be a broken shim.
        old_ifs=$IFS; IFS=:
        for directory in $PATH; do
            IFS=$old_ifs
            [ -x "${directory:-.}/$name" ] || continue
            found=$("${directory:-.}/$name" -c "$probe" 2>/dev/null </dev/null) || continue
            if "$found" -c "$parts" 2>/dev/null; then echo "$found"; exit 0; fi
            [ -n "$incomplete" ] || incomplete=$found
        done
        IFS=$old_ifs
    done
fi

if [ -n "$incomplete" ]; then
    version=$("$incomplete" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    if [ "$(uname -s)" = Darwin ]; then
        remedy="brew install python@3.13"
    else
        remedy="apt-get install -y python$version-venv   (as root)"
    fi
    echo "$incomplete lacks venv or ensurepip. This installs them: $remedy" >&2
else
    echo "No Python 3.11-3.14 found on the PATH. This installs one: $install_python" >&2
fi
exit 1
