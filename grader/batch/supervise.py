"""Run one command with a hard limit, and end all that it started, whatever became of it.

    python -m grader.batch.supervise LIMIT_S COMMAND...

A process of its own, because it takes over every orphan of the command: a grader that is killed leaves
workers in sessions of their own. Exits as the command did, with 124 where the limit ended it; dies with its
parent.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys

from grader.processes import running, wait_for

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
OVER, SIGNALLED = 124, 128  # exit codes, as timeout(1) and a shell have them; a signal's number comes on top
SWEEPS = 50


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def main(limit_s: float, command: list[str]) -> int:
    """The exit code of the command, negative for a signal."""
    libc = ctypes.CDLL(None)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    # The parent is to end us by SIGTERM, so that the sweep below comes about.
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    signal.signal(signal.SIGTERM, _stop)
    process = subprocess.Popen(
        command,
        start_new_session=True,
        preexec_fn=_die_with_parent,  # noqa: PLW1509 - this process has no thread beside this one
    )
    try:
        return process.wait(limit_s)
    except subprocess.TimeoutExpired:
        return OVER
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the sweep is not to be disturbed
        sweep()


def _stop(*_) -> None:
    raise SystemExit(SIGNALLED + signal.SIGTERM)


def sweep() -> None:
    """Kill every child until there is none: those of a child that died have become ours."""
    for _ in range(SWEEPS):
        children = [one.pid for one in running() if one.parent == os.getpid()]
        if not children:
            return
        for pid in children:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        for pid in children:
            wait_for(pid)


if __name__ == "__main__":
    ended = main(float(sys.argv[1]), sys.argv[2:])
    sys.exit(ended if ended >= 0 else SIGNALLED - ended)
