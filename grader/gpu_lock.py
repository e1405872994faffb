"""Who may use a GPU now: a lock file keyed by the GPU, which a dead holder gives up by dying."""

from __future__ import annotations

import fcntl
import os
import sys
import tempfile
import time
from pathlib import Path


class GpuLock:
    """Held from `with` to its end; `waited_s` says how long another grader kept it.

    A grader has the GPU alone; `shared` is for tests that take no time, and keeps only the others away.
    """

    def __init__(self, uuid_hash: str, folder: Path | None = None, shared: bool = False):
        self._kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
        self._path = Path(folder or tempfile.gettempdir()) / f"triton-grader-{uuid_hash}.lock"
        self._descriptor = -1
        self.waited_s = 0.0

    def __enter__(self) -> GpuLock:
        began = time.monotonic()
        # A link planted under this name is not followed. To lock needs no right to write: the file may be
        # another user's.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            self._descriptor = os.open(self._path, flags)
        except FileNotFoundError:
            self._descriptor = os.open(self._path, flags | os.O_CREAT, 0o644)
        try:
            fcntl.flock(self._descriptor, self._kind | fcntl.LOCK_NB)
        except BlockingIOError:
            print("another grader uses this GPU; waiting until it has finished", file=sys.stderr, flush=True)
            fcntl.flock(self._descriptor, self._kind)
        self.waited_s = time.monotonic() - began
        return self

    def __exit__(self, *_) -> None:
        os.close(self._descriptor)
