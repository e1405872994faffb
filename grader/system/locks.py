"""The lock on a file that every part of the grader uses: flock, which a holder that dies gives up by dying.

By hand, as the libraries lack what a GPU shared by several users needs. The lock of `filelock` is exclusive,
its shared one keeps a SQLite database in the file, and both must be able to write to the file: it may be
another user's.
"""

from __future__ import annotations

import fcntl
import os
import sys
import time
from pathlib import Path

RETRY_S = 0.1
TOKEN_BYTES = 64  # at most


class HeldError(Exception):
    """Another process kept the lock for longer than the patience of this one."""


class FileLock:
    """A lock file, held from `with` to its end; `waited_s` says how long somebody else kept it.

    `shared` keeps only those away who want it alone. Without `patience_s` it waits for as long as it takes,
    and prints `waiting` where it has to; else it raises HeldError. A `token` is written into the file once
    the lock is held, and names its holder to `is_held`.
    """

    def __init__(
        self,
        path: Path,
        *,
        shared: bool = False,
        waiting: str = "",
        patience_s: float | None = None,
        token: str = "",
        mode: int = 0o600,
    ):
        self._path, self._mode = path, mode
        self._kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
        self._waiting, self._patience_s = waiting, patience_s
        self.token = token
        self.waited_s = 0.0

    def __enter__(self) -> FileLock:
        began = time.monotonic()
        self._descriptor = self._opened()
        try:
            self._acquire(began)
            if self.token:
                os.ftruncate(self._descriptor, 0)
                os.pwrite(self._descriptor, self.token.encode(), 0)
        except BaseException:
            os.close(self._descriptor)
            raise
        self.waited_s = time.monotonic() - began
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    def _opened(self) -> int:
        # A link planted under this name is not followed. To lock needs no right to write: the file may be
        # another user's.
        flags = (os.O_RDWR if self.token else os.O_RDONLY) | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            return os.open(self._path, flags)
        except FileNotFoundError:
            return os.open(self._path, flags | os.O_CREAT, self._mode)

    def _acquire(self, began: float) -> None:
        if _locked(self._descriptor, self._kind):
            return
        if self._waiting:
            print(self._waiting, file=sys.stderr, flush=True)
        if self._patience_s is None:
            fcntl.flock(self._descriptor, self._kind)
            return
        while not _locked(self._descriptor, self._kind):
            if time.monotonic() - began > self._patience_s:
                raise HeldError(str(self._path))
            time.sleep(RETRY_S)


def is_held(path: Path, token: str) -> bool:
    """Whether the holder with this token still has the lock; a later holder has changed it."""
    try:
        with open(path, "rb", buffering=0) as file:
            written = file.read(TOKEN_BYTES).decode("ascii", "replace")
            return written == token and not _locked(file.fileno(), fcntl.LOCK_SH)
    except OSError:
        return False


def _locked(descriptor: int, kind: int) -> bool:
    """Take the lock if nobody else has it."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
