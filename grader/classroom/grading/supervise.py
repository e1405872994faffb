"""Run one command with a hard time limit, and end all processes that it started, however it ends.

    python -m grader.classroom.grading.supervise LIMIT_S COMMAND...

While the command waits for the lock of a GPU no time counts: its note is in the folder GRADER_SCRATCH. It is
a separate process because it becomes the parent of every orphan of the command: a killed grader leaves
workers in other sessions. It exits with the command's exit code, or 124 at the limit, and dies with its
parent.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from grader.system import process_tree
from grader.system.gpu_lock import NOTE, waited_s
from grader.system.processes import Child

LOOK_S = 0.5  # between two looks at the note
OVER, SIGNALLED = 124, 128  # exit codes, as of timeout(1) and a shell; a signal's number is added to 128


def main(limit_s: float, command: list[str]) -> int:
    """Run the command and return its exit code, negative for a signal."""
    process_tree.adopt_orphans()
    # SIGTERM when the parent dies, so that all other processes are ended below.
    process_tree.die_with_parent(signal.SIGTERM)
    signal.signal(signal.SIGTERM, _stop)
    child = Child(command, own_session=True, prepare=process_tree.die_with_parent)
    try:
        scratch, left_s = os.environ.get("GRADER_SCRATCH"), limit_s
        while left_s > 0.0:
            began = time.monotonic()
            code = child.wait(min(LOOK_S, left_s))
            if code is not None:
                return code
            if scratch is None or waited_s(Path(scratch) / NOTE) is not None:
                left_s -= time.monotonic() - began
        return OVER
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # nothing may interrupt what follows
        process_tree.end_children()


def _stop(*_) -> None:
    raise SystemExit(SIGNALLED + signal.SIGTERM)


if __name__ == "__main__":
    ended = main(float(sys.argv[1]), sys.argv[2:])
    sys.exit(ended if ended >= 0 else SIGNALLED - ended)
