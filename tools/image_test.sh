#!/bin/sh
# Build the image with buildah and run its roles from its own root file system: tools/image_test.sh PYTHON [PYTEST-ARGUMENT...].
# Called by `make image-test`. $BASE names a base; without it a base is made where no registry gives the Dockerfile's.
set -eu
cd "$(dirname "$0")/.."
export BUILDER=buildah
. tools/builder.sh

[ "$(id -u)" = 0 ] || stop "the image's test changes roots and users: run make image-test as root"
python=$1
shift
base=${BASE:-$(sed -n 's/^ARG BASE=//p' Dockerfile)}
if ! have_image "$base" && ! images pull --quiet "$base" >/dev/null 2>&1; then
    [ -z "${BASE:-}" ] || stop "the base $BASE is not on this machine, and no registry gives it"
    base=infscale-base
    have_image "$base" || tools/base_image.sh "$base"
fi
BASE=$base tools/image.sh infscale:test
exec "$python" -m pytest -q -s tests/image --image=infscale:test "$@"
