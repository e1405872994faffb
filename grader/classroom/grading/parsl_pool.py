"""Run Parsl's worker pool of one node so that it ends with the command, however that ends.

    python -m grader.classroom.grading.parsl_pool LOCK TOKEN ARGUMENTS...

Parsl's own pool waits forever if it never connected to the command.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from grader.classroom.grading.supervise import SIGNALLED
from grader.system import process_tree
from grader.system.locks import is_held
from grader.system.processes import Child

LOOK_S = 2.0
FAILURES = 3  # in a row: a file system may fail briefly, and workers need time to clean up


def main(lock: Path, token: str, arguments: list[str]) -> int:
    """Run the pool and return its exit code; 1 if the command ended first."""
    process_tree.adopt_orphans()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(SIGNALLED + signal.SIGTERM))
    module = "parsl.executors.high_throughput.process_worker_pool"
    child = Child([sys.executable, "-m", module, *arguments])
    failures = 0
    try:
        while failures < FAILURES:
            code = child.wait(LOOK_S)
            if code is not None:
                return code
            failures = 0 if is_held(lock, token) else failures + 1
        return 1
    finally:
        process_tree.end_children()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:]))
