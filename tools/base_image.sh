#!/bin/sh
# Make a base image of Debian's packages alone, for `make image` where no registry can be reached:
# tools/base_image.sh [NAME]; the name is infscale-base unless told. Needs root and a Debian mirror. See docs/image.md.
set -eu
cd "$(dirname "$0")/.."
. tools/builder.sh

name=${1:-infscale-base}
suite=bookworm # Python 3.11, the oldest that infscale runs on

[ "$(id -u)" = 0 ] || stop "debootstrap makes files of many owners: run tools/base_image.sh as root, or name a base: make image BASE=..."
if ! command -v debootstrap >/dev/null; then
    command -v apt-get >/dev/null || stop "a base image is made by debootstrap: install it, or name a base: make image BASE=..."
    echo "installing the Debian package debootstrap"
    tools/apt.sh debootstrap
fi

context=$(mktemp -d)
trap 'rm -rf --one-file-system "$context"' EXIT
trap 'exit 130' INT TERM
echo "making $name of Debian $suite with $builder: a minute"
if ! debootstrap --variant=minbase --include=python3,python3-venv,ca-certificates "$suite" "$context/root" > "$context/log" 2>&1; then
    tail -n 5 "$context/log" >&2
    stop "debootstrap could not make Debian $suite; its last lines stand above"
fi
# Package lists, downloads, manuals and translations: half of it, and nothing that runs.
(cd "$context/root" && rm -rf var/lib/apt/lists/* var/cache/apt/* var/log/* usr/share/doc usr/share/man usr/share/locale)
printf 'FROM scratch\nCOPY root /\nCMD ["python3"]\n' > "$context/Dockerfile"
images build --quiet --tag "$name" "$context" >/dev/null || stop "$builder could not build $name"
echo "made $name: $(size_of "$name"); now: make image BASE=$name"
