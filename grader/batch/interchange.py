"""Parsl's interchange, which ends with the command that started it: by itself it would outlive a kill."""

from __future__ import annotations

import ctypes
import runpy
import signal

PR_SET_PDEATHSIG = 1

if __name__ == "__main__":
    # Ctrl-C on a terminal reaches every process of the group; the command alone decides what comes of it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    runpy.run_module("parsl.executors.high_throughput.interchange", run_name="__main__")
