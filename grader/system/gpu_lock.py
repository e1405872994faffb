"""The lock of a GPU: a file named by the GPU, in the folder for temporary files."""

from __future__ import annotations

import tempfile
from pathlib import Path

from grader.system.locks import FileLock, HeldError

NOTE = "gpu-lock"  # in the folder for a grading's temporary files: see GpuLock


class GpuLock(FileLock):
    """The lock of one GPU, held inside `with`; `waited_s` are the seconds that it waited for another grader.

    A grader takes it exclusively; tests that time nothing take it `shared`, several at once. The file `note`
    is empty while the lock is waited for, and then says for how many seconds that was.
    """

    def __init__(
        self, uuid_hash: str, folder: Path | None = None, shared: bool = False, note: Path | None = None
    ):
        self._note = note
        super().__init__(
            Path(folder or tempfile.gettempdir()) / f"triton-grader-{uuid_hash}.lock",
            shared=shared,
            waiting="another grader uses this GPU; waiting until it has finished",
            mode=0o644,  # other users lock the same file
        )

    def __enter__(self) -> GpuLock:
        if self._note:
            self._note.write_text("", "utf-8")
        super().__enter__()
        if self._note:
            self._note.write_text(f"{self.waited_s:.3f}", "utf-8")
        return self

    @property
    def is_taken(self) -> bool:
        """Whether a grader holds the lock now."""
        try:
            with FileLock(self._path, patience_s=0.0):
                return False
        except HeldError:
            return True


def waited_s(note: Path) -> float | None:
    """Return for how many seconds the lock with this note was waited for; None if it still is.

    0 where no grader has come to its lock yet.
    """
    try:
        words = note.read_text("utf-8")
    except OSError:
        return 0.0
    return float(words) if words else None
