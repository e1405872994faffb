"""A file lock by flock, used by all parts of the grader; the kernel releases it when its holder dies.

No library is used, because several users may share a GPU, and then the file may belong to another user. Both
locks of `filelock` must be able to write to the file: one is only exclusive, the other, which can be shared,
keeps a SQLite database in it.
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
    """Another process held the lock until this one had waited for `patience_s`."""


class FileLock:
    """A lock on a file, held inside `with`; `waited_s` are the seconds that it had to wait.

    A `shared` lock excludes only exclusive ones. If the lock is not free, `waiting` is printed. Without
    `patience_s` the wait has no limit; after `patience_s` seconds HeldError is raised. A `token` is written
    to the file once the lock is held, so that `is_held` can recognise this holder.
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
        # A symbolic link is not followed: another user may have created it. Without a token the file is
        # opened read-only, because it may belong to another user.
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
    """Whether the holder with this token still has the lock; a later holder writes another token."""
    try:
        with open(path, "rb", buffering=0) as file:
            written = file.read(TOKEN_BYTES).decode("ascii", "replace")
            return written == token and not _locked(file.fileno(), fcntl.LOCK_SH)
    except OSError:
        return False


def _locked(descriptor: int, kind: int) -> bool:
    """Take the lock if it is free; return whether it was."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
