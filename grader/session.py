"""What one run owns: its seed, a private folder, and the warm parents; imports no torch, so it starts at
once.
"""

from __future__ import annotations

import hashlib
import itertools
import shutil
import tempfile
from pathlib import Path

from grader.sandbox import WarmParent


class Session:
    """What one run owns: its seed, a private folder, the warm parents and the devices."""

    def __init__(self, device: str, seed: int):
        self.device = device  # of the judge and of the tier that decides correctness: "cpu" or "cuda"
        self.seed = seed
        self.folder = Path(tempfile.mkdtemp(prefix="grader-"))
        self._parents: dict[bool, WarmParent] = {}
        self._folders = itertools.count(1)  # two threads take folders

    def parent(self, interpreted: bool) -> WarmParent:
        """The warm parent for a mode; started at the first call, usable once its imports are done."""
        if interpreted not in self._parents:
            self._parents[interpreted] = WarmParent(interpreted, self.folder)
        return self._parents[interpreted]

    def private_folder(self, name: str) -> Path:
        """A new folder for one worker."""
        folder = self.folder / f"{next(self._folders):03d}-{name}"
        folder.mkdir()
        return folder

    def cache(self, file: Path) -> Path:
        """The folder for compiled kernels of one file, empty when the run begins."""
        digest = hashlib.sha256(str(file.resolve()).encode()).hexdigest()[:16]
        folder = self.folder / f"cache-{digest}"
        folder.mkdir(exist_ok=True)
        return folder

    def close(self) -> None:
        """End the warm parents and remove what the run wrote."""
        for parent in self._parents.values():
            parent.close()
        shutil.rmtree(self.folder, ignore_errors=True)
