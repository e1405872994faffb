"""Lock of a run folder: released when its holder ends, with a token that identifies the command."""

from __future__ import annotations

import uuid
from pathlib import Path

from grader.system.locks import FileLock, HeldError

PATIENCE_S = 3.0  # a worker that checks on its command holds the lock for an instant


class BusyError(Exception):
    """Another command is using this folder."""


class Lock(FileLock):
    """Exclusive lock of a run folder, a context manager; `token` identifies this command to its workers."""

    def __init__(self, path: Path):
        super().__init__(path, patience_s=PATIENCE_S, token=uuid.uuid4().hex)
        self._folder = path.parent

    def __enter__(self) -> Lock:
        self._folder.mkdir(parents=True, exist_ok=True)
        try:
            return super().__enter__()
        except HeldError:
            words = f"{self._folder.parent}: another command is using this folder"
            raise BusyError(f"{words}; wait for it, or give another OUT=") from None
