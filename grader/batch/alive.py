"""Who works on a run folder: a lock that ends with its holder, and a token that a later command changes."""

from __future__ import annotations

import fcntl
import os
import time
import uuid
from pathlib import Path

PATIENCE_S = 3.0  # a worker that looks whether its command lives holds the lock for an instant


class BusyError(Exception):
    """Another command works on this folder."""


class Lock:
    """The run folder's lock, held from `with` to its end; `token` names this command to its workers."""

    def __init__(self, path: Path):
        self._path, self.token = path, uuid.uuid4().hex

    def __enter__(self) -> Lock:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    os.close(self._descriptor)
                    words = f"{self._path.parent.parent}: another command works on this folder"
                    raise BusyError(f"{words}; wait for it, or give another OUT=") from None
                time.sleep(0.1)
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, self.token.encode(), 0)
        return self

    def __exit__(self, *_) -> None:
        os.close(self._descriptor)


def commanded(path: Path, token: str) -> bool:
    """Whether the command with this token still works on the folder; asked by its workers."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        if os.pread(descriptor, 64, 0).decode("ascii", "replace") != token:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False
    finally:
        os.close(descriptor)
