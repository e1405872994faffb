"""One run of `grade` as a process of its own, which can be stopped at any time and leaves nothing behind."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from grader import processes
from grader.parent import PR_SET_CHILD_SUBREAPER

SHOWN_LINES = 3  # of what a run that failed wrote to stderr


class Child:
    """A run of `grade` with these arguments."""

    def __init__(self, arguments: Sequence[str]):
        # Whatever outlives a stopped run becomes a child of this process, which ends it.
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self._folder = tempfile.mkdtemp(prefix="grader-watch-")
        os.chmod(self._folder, 0o711)  # workers run as users of their own
        self._told, tell = os.pipe()
        os.set_blocking(self._told, False)
        self._rest = b""
        self._began = time.monotonic()
        self._tells: dict = {}
        self._errors = open(Path(self._folder, "stderr"), "w+b")  # noqa: SIM115 - lives with self
        command = [sys.executable, "-m", "grader", "grade", *arguments, "--tell", str(tell)]
        self._process = subprocess.Popen(
            command,
            env={**os.environ, "TMPDIR": self._folder},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._errors,
            pass_fds=[tell],
            start_new_session=True,  # Ctrl-C reaches the watcher alone, and that decides what ends
        )
        os.close(tell)

    def poll(self) -> int | None:
        """The exit code once the run has ended; until then its progress is brought up to date."""
        try:
            while data := os.read(self._told, 65536):
                *lines, self._rest = (self._rest + data).split(b"\n")
                for line in lines:
                    self._tells |= json.loads(line)
        except BlockingIOError:
            pass
        return self._process.poll()

    @property
    def progress(self) -> dict:
        """What the run last told of itself, see progress.Teller; and how many seconds it has taken."""
        return {**self._tells, "seconds": time.monotonic() - self._began}

    @property
    def errors(self) -> str:
        """The last lines that the run wrote to stderr."""
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return " | ".join(lines[-SHOWN_LINES:])

    def end(self) -> None:
        """Stop the run if it goes on, with all that it started, and remove what it wrote for itself.

        A run that is stopped writes no reports: half of a result must not pass for one.
        """
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        processes.reap_orphans(())
        os.close(self._told)
        self._errors.close()
        shutil.rmtree(self._folder, ignore_errors=True)
