#!/bin/sh
# Build the image of this repository: tools/image.sh [NAME[:TAG]]. Called by `make image`; see docs/image.md.
# $BASE names another base than the Dockerfile's, $BUILDER the program that builds.
set -eu
cd "$(dirname "$0")/.."
. tools/builder.sh

version=$(sed -n 's/^__version__ = "\(.*\)"$/\1/p' exporter/infscale/__init__.py)
image=${1:-infscale:$version}
base=${BASE:-$(sed -n 's/^ARG BASE=//p' Dockerfile)}

if ! have_image "$base" && ! images pull --quiet "$base" >/dev/null 2>&1; then
    stop "the base $base is not on this machine, and no registry gives it: tools/base_image.sh makes one of Debian's" \
        "packages, then: make image BASE=infscale-base ('$builder pull $base' says why)"
fi

# pip reaches its index inside the build as it does out here. All of it comes as secrets: it stays in no layer.
secrets=$(mktemp -d)
trap 'rm -rf "$secrets"' EXIT
trap 'exit 130' INT TERM
settings=$(python3 -m pip config list 2>/dev/null || "${VENV:-.venv}/bin/python" -m pip config list 2>/dev/null || true)

# What pip goes by for the option $1: its environment first, then its files, where a list's lines are parted by \n.
pip_setting() {
    value=$(printenv "PIP_$(echo "$1" | tr a-z- A-Z_)" || true)
    [ -n "$value" ] || value=$(echo "$settings" | sed -n "s/^\(install\|global\)\.$1='\(.*\)'\$/\2/p" | sed 's/\\n/ /g' | head -n 1)
    echo "$value"
}

{
    echo "[global]"
    for option in index-url extra-index-url trusted-host proxy timeout; do
        value=$(pip_setting "$option")
        [ -z "$value" ] || echo "$option = $value"
    done
} > "$secrets/pip.conf"
ca=$(pip_setting cert)
ca=${ca:-${REQUESTS_CA_BUNDLE:-${SSL_CERT_FILE:-}}}
set -- --secret "id=pip.conf,src=$secrets/pip.conf"
if [ -f "$ca" ]; then
    echo "cert = /run/ca.pem" >> "$secrets/pip.conf"
    set -- "$@" --secret "id=ca.pem,src=$ca"
fi
revision=$(git rev-parse --short HEAD 2>/dev/null || echo unknown)

echo "building $image on $base with $builder"
if ! images build "$@" --build-arg "BASE=$base" --build-arg "VERSION=$version" --build-arg "REVISION=$revision" \
    --tag "$image" . > "$secrets/log" 2>&1; then
    tail -n 30 "$secrets/log" >&2
    stop "$builder could not build the image; its last lines stand above"
fi
echo "built $image: $(size_of "$image"), its base $(size_of "$base")"
