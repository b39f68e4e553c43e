#!/bin/sh
# Make the virtual environment $1 and install infscale and its tools into it. Called by the Makefile.
# Needs Python 3.11 or newer; $PYTHON names another one than the first found.
set -eu

venv=$1
stop() { echo "infscale: $*" >&2; exit 1; }

suits() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

find_python() {
    for name in ${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11 /usr/bin/python3}; do
        if suits "$name"; then echo "$name"; return; fi
    done
    stop "${PYTHON:-python3} is not Python 3.11 or newer; name one that is: make PYTHON=/path/to/python3.11 ..."
}

# Debian keeps what `python3 -m venv` needs in a package of its own.
need_venv() {
    "$1" -c 'import ensurepip, venv; ensurepip.version()' 2>/dev/null && return
    package=$("$1" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
    command -v apt-get >/dev/null || stop "$1 lacks the modules venv and ensurepip; install them and run make again"
    [ "$(id -u)" = 0 ] || stop "$1 cannot make virtual environments; run once: sudo apt-get install -y $package"
    echo "installing $package" >&2
    tools/apt.sh "$package"
}

if ! suits "$venv/bin/python" || ! "$venv/bin/python" -c 'import pip' 2>/dev/null; then
    python=$(find_python)
    need_venv "$python"
    echo "making $venv with $("$python" --version)" >&2
    rm -rf "$venv"
    "$python" -m venv "$venv"
fi
echo "installing infscale and its tools into $venv" >&2
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-input -c constraints.txt -e '.[dev]'
