"""Parsl's pool of workers for one node, which ends with the command that wanted it, whatever became of that.

    python -m grader.batch.pool LOCK TOKEN ARGUMENTS...

By itself a pool that never reached its command waits on.
"""

from __future__ import annotations

import ctypes
import signal
import subprocess
import sys
from pathlib import Path

from grader.batch.alive import commanded
from grader.batch.supervise import PR_SET_CHILD_SUBREAPER, SIGNALLED, sweep

LOOK_S = 2.0
FAILURES = 3  # in a row: a file system may stumble, and workers are to clean up by themselves


def main(lock: Path, token: str, arguments: list[str]) -> int:
    """The exit code of the pool."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(SIGNALLED + signal.SIGTERM))
    module = "parsl.executors.high_throughput.process_worker_pool"
    process = subprocess.Popen([sys.executable, "-m", module, *arguments])
    failures = 0
    try:
        while failures < FAILURES:
            try:
                return process.wait(LOOK_S)
            except subprocess.TimeoutExpired:
                failures = 0 if commanded(lock, token) else failures + 1
        return 1
    finally:
        sweep()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:]))
