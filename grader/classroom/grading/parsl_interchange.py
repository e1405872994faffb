"""Run Parsl's interchange so that it ends with the command that started it, even if that is killed."""

from __future__ import annotations

import runpy
import signal

from grader.system.process_tree import die_with_parent

if __name__ == "__main__":
    # Ctrl-C on a terminal reaches every process of the group; only the command handles it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    die_with_parent()
    runpy.run_module("parsl.executors.high_throughput.interchange", run_name="__main__")
