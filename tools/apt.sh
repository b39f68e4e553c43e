#!/bin/sh
# Install Debian packages as root, quietly, without starting the services that they bring. Called by the Makefile's scripts.
set -eu

# A package's service must not start on a machine that only wants the tools: Debian asks this file first.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' > "$policy"
    chmod +x "$policy"
    trap 'rm -f "$policy"' EXIT
    trap 'exit 130' INT TERM
fi

log=$(mktemp)
if ! { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@"; } > "$log" 2>&1; then
    tail -n 5 "$log" >&2
    rm -f "$log"
    echo "infscale: apt-get could not install $*; its last lines stand above" >&2
    exit 1
fi
rm -f "$log"
