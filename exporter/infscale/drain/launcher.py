"""The shell half of the preStop hook: a POSIX `sh` script beside the zip application. `bundle` writes it.

It is for `sh` alone (dash, busybox, bash): what it calls besides is looked for first. Its own clock is /proc/uptime,
read by the shell itself, so that an image without `date` will do and a wall clock that jumps changes nothing.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from infscale import __version__

NAME = "infscale-drain"
ZIP_NAME = "infscale-drain.pyz"

PLACES = ("/opt/venv/bin", "/opt/conda/bin", "/opt/py3/bin", "/venv/bin", "/app/.venv/bin")
"""Where engines' images keep a Python that PATH may not name: vLLM, TGI, LMDeploy and what is built with uv."""

_SCRIPT = r"""#!/bin/sh
# Holds SIGTERM back from an engine until its requests are done: the preStop hook of infscale @VERSION@.
#
#   sh DIR/infscale-drain [--engine NAME] [--url URL] [--grace SECONDS] [--exit-reserve SECONDS] [--sidecar-url URL] ...
#
# Written by `infscale install-hook`, with the defaults below. Where there is a Python (3.9 or newer) it runs @ZIP@
# beside it; else it asks the sidecar's /drain with curl or wget; else it waits for the settle time, in which requests
# arrive that were routed just before the delete. It always exits 0 and has returned 3 s before the grace is over
# (more with --exit-reserve): a hook that fails adds an event and changes nothing.

set -- @DEFAULTS@ "$@"
settle=5 grace=30 reserve=5 most=3600 sidecar=http://127.0.0.1:10048
unset http_proxy https_proxy all_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY
[ -n "$PATH" ] || PATH=/usr/local/bin:/usr/bin:/bin
sleep=$(command -v sleep) || sleep=/bin/sleep
work='' guard=''
trap 'kill $work $guard 2>/dev/null; exit 0' INT TERM HUP

# What @ZIP@ reads too; here only what bounds the time, and the sidecar.
option=
for word do
    case $option in
        --grace) grace=$word ;;
        --exit-reserve) reserve=$word ;;
        --max-grace) most=$word ;;
        --sidecar-url) sidecar=$word ;;
    esac
    option=
    case $word in
        --grace=*) grace=${word#*=} ;;
        --exit-reserve=*) reserve=${word#*=} ;;
        --max-grace=*) most=${word#*=} ;;
        --sidecar-url=*) sidecar=${word#*=} ;;
        --*) option=$word ;;
    esac
done

# whole TEXT DEFAULT: sets $whole to the whole seconds in TEXT.
whole() {
    whole=${1%%.*}
    while :; do
        case $whole in
            0?*) whole=${whole#0} ;; # $((08)) is an error, $((030)) is 24
            '' | *[!0-9]*) whole=$2 ;;
            ?????*) whole=9999 ;;
            *) break ;;
        esac
    done
}

# clock: sets $now to a count of seconds and $exact to the same with its fraction; both 0 where there is no clock.
clock() {
    exact=0
    read -r exact _ 2>/dev/null </proc/uptime
    now=${exact%%.*}
}

# left: sets $spent to the seconds since the start, and $left to those until the hook must have returned.
left() {
    clock
    spent=$((now - started))
    left=$((within - spent - 1)) # 1: the clock tells whole seconds
}

# bounded COMMAND...: runs a command for at most $left seconds. @ZIP@ ends by itself in time, and ignores SIGALRM.
bounded() {
    "$@" &
    work=$!
    (
        trap 'kill "$nap"; exit' TERM
        "$sleep" "$left" &
        nap=$!
        wait "$nap" && kill -ALRM "$work"
    ) >/dev/null 2>&1 </dev/null &
    guard=$!
    wait "$work" 2>/dev/null
    status=$?
    kill "$guard" 2>/dev/null
    work='' guard=''
    return "$status"
}

whole "$most" 3600
most=$whole
whole "$grace" 30
grace=$whole
[ "$grace" -ge 15 ] || grace=15
[ "$grace" -le 3600 ] || grace=3600
whole "$reserve" 5
reserve=$whole
[ "$reserve" -le $((grace - 10)) ] || reserve=$((grace - 10))
[ "$most" -eq 0 ] || [ "$most" -ge "$grace" ] || grace=$most
within=$((grace > reserve ? grace - reserve + 2 : 2))
[ "$within" -le "$grace" ] || within=$grace
case $0 in
    */*) here=${0%/*} ;;
    *) here=. ;;
esac
clock
started=$now since=$exact

without="no Python from 3.9 on"
for python in python3 python @PYTHONS@; do
    command -v "$python" >/dev/null 2>&1 || continue
    left
    [ "$left" -gt 0 ] || exit 0
    bounded "$python" -I -S -B "$here/@ZIP@" "$@" --started "$since" && exit 0
    case $status in
        3) ;; # older than 3.9
        4) without="the drain could not be done" && break ;;
        *) echo "infscale-drain: $python could not run $here/@ZIP@ (exit status $status)" >&2 ;;
    esac
done

for client in "curl -q -sS -f --max-time" "wget -q -O - -t 1 -T"; do
    command -v "${client%% *}" >/dev/null 2>&1 || continue
    left
    [ "$left" -gt 0 ] || exit 0
    bounded $client "$left" "$sidecar/drain" && exit 0
    without="$without, no answer from $sidecar/drain with ${client%% *}"
done

left
nap=$((settle - spent))
[ "$spent" -le 0 ] || nap=$((nap + 1))
[ "$nap" -gt 0 ] || nap=0
"$sleep" "$nap" &
work=$!
wait "$work" || without="$without, no sleep"
case $without in
    *answer*) ;;
    *) without="$without, neither curl nor wget" ;;
esac
echo "infscale-drain: waited for the settle time of $settle s and looked at no request: $without"
exit 0
"""


def render(defaults: Sequence[str]) -> str:
    """The script, with the options that hold where its caller gives none.

    Args:
        defaults: as they would stand on its command line, `("--engine", "vllm", ...)`.
    """
    values = {
        "@VERSION@": __version__,
        "@ZIP@": ZIP_NAME,
        "@PYTHONS@": " ".join(f"{place}/python3" for place in PLACES),
        "@DEFAULTS@": shlex.join(defaults),
    }
    script = _SCRIPT
    for mark, value in values.items():
        script = script.replace(mark, value)
    return script
