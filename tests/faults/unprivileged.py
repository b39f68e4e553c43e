"""Runs a program without root's right to pass by file modes: `python unprivileged.py infscale recommender ...`."""

from __future__ import annotations

import ctypes
import os
import sys

_PR_CAPBSET_DROP, _CAP_DAC_OVERRIDE = 24, 1

if __name__ == "__main__":
    if os.geteuid() == 0:  # what execve gives root is bounded by this set
        ctypes.CDLL(None, use_errno=True).prctl(_PR_CAPBSET_DROP, _CAP_DAC_OVERRIDE, 0, 0, 0)
    os.execv(sys.executable, [sys.executable, "-m", *sys.argv[1:]])
