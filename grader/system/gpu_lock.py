"""Who may use a GPU now: a lock file keyed by the GPU, in the folder for temporary files."""

from __future__ import annotations

import tempfile
from pathlib import Path

from grader.system.locks import FileLock


class GpuLock(FileLock):
    """Held from `with` to its end; `waited_s` says how long another grader kept it.

    A grader has the GPU to itself. `shared` is for tests that time nothing: several may hold it at once.
    """

    def __init__(self, uuid_hash: str, folder: Path | None = None, shared: bool = False):
        super().__init__(
            Path(folder or tempfile.gettempdir()) / f"triton-grader-{uuid_hash}.lock",
            shared=shared,
            waiting="another grader uses this GPU; waiting until it has finished",
            mode=0o644,  # other users lock the same file
        )
