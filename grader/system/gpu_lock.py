"""The lock of a GPU: a file named by the GPU, in the folder for temporary files."""

from __future__ import annotations

import tempfile
from pathlib import Path

from grader.system.locks import FileLock


class GpuLock(FileLock):
    """The lock of one GPU, held inside `with`; `waited_s` are the seconds that it waited for another grader.

    A grader takes it exclusively; tests that time nothing take it `shared`, several at once.
    """

    def __init__(self, uuid_hash: str, folder: Path | None = None, shared: bool = False):
        super().__init__(
            Path(folder or tempfile.gettempdir()) / f"triton-grader-{uuid_hash}.lock",
            shared=shared,
            waiting="another grader uses this GPU; waiting until it has finished",
            mode=0o644,  # other users lock the same file
        )
