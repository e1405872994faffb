"""Run `grade` in a separate process that can be stopped at any time and leaves nothing behind.

It imports what it needs before it knows what to grade: then a save is graded at once.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from grader.grading.options import RunOptions
from grader.grading.run_state import RunState
from grader.system import process_tree, processes
from grader.system.processes import DEVNULL, Messages

SHOWN_LINES = 3  # of what a run that failed wrote to stderr


class Child:
    """A run of `grade` on a tier; it waits until it is told its options."""

    def __init__(self, tier: str):
        # Processes that outlive a stopped run become children of this process, which then ends them.
        process_tree.adopt_orphans()
        self._folder = tempfile.mkdtemp(prefix="grader-watch-")
        os.chmod(self._folder, 0o711)  # workers may run as other users
        self._pipe, self._tell = os.pipe()
        wanted, self._ask = os.pipe()
        self._messages = Messages(self._pipe)
        self._began = time.monotonic()
        self.state = RunState()  # the last progress message of the run
        self._errors = open(Path(self._folder, "stderr"), "w+b")  # noqa: SIM115 - lives with self
        self._process = processes.Child(
            [sys.executable, "-m", "grader", "ready", "--tier", tier],
            env={**os.environ, "TMPDIR": self._folder},
            stdin=wanted,
            stdout=DEVNULL,
            stderr=self._errors,
            pass_fds=[self._tell],
            own_session=True,  # Ctrl-C reaches only the watcher, which then stops the run
        )
        os.close(wanted)

    def begin(self, options: RunOptions) -> None:
        """Grade with these options."""
        self._began = time.monotonic()
        words = json.dumps(replace(options, tell=self._tell).arguments()) + "\n"
        with contextlib.suppress(BrokenPipeError):  # `errors` says why it has ended
            os.write(self._ask, words.encode())
        self._close_asked()

    def _close_asked(self) -> None:
        if self._ask >= 0:
            os.close(self._ask)
            os.close(self._tell)
            self._ask = -1

    def poll(self) -> int | None:
        """Read new progress messages; return the exit code, or None while the run has not ended."""
        for message in self._messages.new():
            self.state = RunState.model_validate(message)
        return self._process.wait(0.0)

    @property
    def seconds(self) -> float:
        """Seconds since the run started."""
        return time.monotonic() - self._began

    @property
    def errors(self) -> str:
        """The last lines that the run wrote to stderr."""
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return " | ".join(lines[-SHOWN_LINES:])

    def end(self) -> None:
        """Stop the run and all processes that it started, and remove its temporary files.

        A stopped run writes no reports: a partial result must not look like a complete one.
        """
        self._process.end()
        self._close_asked()
        process_tree.end_orphans(())
        os.close(self._pipe)
        self._errors.close()
        shutil.rmtree(self._folder, ignore_errors=True)
