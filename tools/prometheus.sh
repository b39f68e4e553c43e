#!/bin/sh
# Make sure that promtool and the Prometheus server are there, for the tests. Called by `make test`.
set -eu

if command -v promtool >/dev/null && command -v prometheus >/dev/null; then exit 0; fi
if ! command -v apt-get >/dev/null; then
    echo "infscale: the tests need promtool and prometheus on the PATH; get them from https://prometheus.io/download/" >&2
    exit 1
fi
if [ "$(id -u)" != 0 ]; then
    echo "infscale: the tests need Debian's package prometheus; run once: sudo apt-get install -y prometheus" >&2
    exit 1
fi
echo "installing the Debian package prometheus (for the tests)"
tools/apt.sh prometheus
