"""The session of one run: its seed, private folder and fork servers. Starts fast: it imports no torch."""

from __future__ import annotations

import hashlib
import itertools
import os
import shutil
import tempfile
import threading
from pathlib import Path
from typing import ClassVar

from grader.sandbox import assurance
from grader.sandbox.confine import Confinement
from grader.worker.fork_server_client import ForkServer

COURSE = Path(__file__).resolve().parents[2]
LEAN = "GRADER_LEAN"  # if set, one fork server at a time, for a container with less than a gigabyte


class Session:
    """The seed, the private folder, the fork servers and the device of one run."""

    _prepared: Session | None = None  # of a process that knows its run later
    _open: ClassVar[set[Path]] = set()  # private folders of this process's sessions

    def __init__(self, device: str, seed: int, confined: bool = True):
        self.device = device  # of the judge and of the correctness checks: "cpu" or "cuda"
        self.seed = seed
        self.confined = confined
        self.uncounted: list[str] = []  # each reason why CUPTI could not count the kernels of a call, once
        self.no_gate: str | None = None  # why this GPU has no gate; "" if it has, None if not yet known
        # A parent that may kill this process sets GRADER_SCRATCH, and removes the folder afterwards.
        self.folder = Path(tempfile.mkdtemp(prefix="grader-", dir=os.environ.get("GRADER_SCRATCH")))
        self._open.add(self.folder)
        self.folder.chmod(0o711)  # workers run as other users, and must reach their folders in it
        self._first_user = assurance.throwaway_user()
        self._users: dict[Path, int] = {}
        self._parents: dict[bool, ForkServer] = {}
        self._folders = itertools.count(1)  # used by several threads
        self._lock = threading.Lock()

    @classmethod
    def prepare(cls, device: str) -> None:
        """Make the session of this process's run before that is known, and start its fork server."""
        cls._prepared = cls(device, seed=0)
        cls._prepared.parent(interpreted=device == "cpu")

    @classmethod
    def of_run(cls, device: str, seed: int, confined: bool) -> Session:
        """Return the session of a run: the prepared one, if it fits."""
        ready = cls._prepared
        if ready is None or ready.device != device or not confined:
            return cls(device, seed, confined)
        cls._prepared, ready.seed = None, seed
        return ready

    @classmethod
    def is_prepared(cls) -> bool:
        """Return whether a session waits for its run."""
        return cls._prepared is not None

    @classmethod
    def close_prepared(cls) -> None:
        """Close the prepared session if no run has taken it."""
        if cls._prepared:
            cls._prepared.close()
            cls._prepared = None

    def parent(self, interpreted: bool, operators: bool = False) -> ForkServer:
        """Return the fork server for a mode; started at the first call, usable once its imports are done.

        With `operators` it imports what files that register torch operators need.
        """
        with self._lock:
            if interpreted in self._parents and self._parents[interpreted].ended:
                self._parents.pop(interpreted).close()
            if interpreted not in self._parents:
                self._parents[interpreted] = ForkServer(interpreted, self.folder, self._first_user, operators)
            elif operators:
                self._parents[interpreted].import_operators()
            return self._parents[interpreted]

    def end_parent(self, interpreted: bool) -> None:
        """End the fork server of a mode to free its memory; its findings are kept."""
        if interpreted in self._parents:
            _ = self._parents[interpreted].findings
            self._parents[interpreted].close()

    @property
    def assurance(self) -> assurance.Assurance | None:
        """Return the assurance level of this run's workers; None if there were none."""
        if not self.confined:
            return assurance.Assurance(1, ("confinement was switched off",)) if self._parents else None
        found = [parent.told for parent in self._parents.values()]
        levels = [assurance.assess(findings) for findings in found if findings is not None]
        least = min(levels, key=lambda found: found.level) if levels else None
        return least.without(f"calls behind a gate ({self.no_gate})") if least and self.no_gate else least

    def confinement(self, file: Path, interpreted: bool, trusted: bool) -> Confinement:
        """Return the confinement of a worker for `file`, as far as this machine can enforce it.

        A trusted worker may also read the course.
        """
        findings = self.parent(interpreted).findings
        with self._lock:
            user = self._users.setdefault(file.resolve(), self._first_user + len(self._users))
        return Confinement(
            read=(str(COURSE / "grader"), str(COURSE / "labs")) if trusted else (),
            uid=0 if trusted or findings.no_user or not self.confined else user,
            judge=os.getpid(),
            programs=not interpreted,
            limit_data=self.device == "cpu",
            memory_files=self.device == "cuda",
            files=self.confined and not findings.no_files,
            calls=self.confined and not findings.no_calls,
        )

    def private_folder(self, name: str) -> Path:
        """Create a folder for one worker."""
        folder = self.folder / f"{next(self._folders):03d}-{name}"
        folder.mkdir(mode=0o700)
        return folder

    @property
    def driver_cache(self) -> Path:
        """Return the folder for what Triton compiles for every process that uses the GPU."""
        folder = self.folder / "driver"
        folder.mkdir(mode=0o700, exist_ok=True)
        return folder

    def cache(self, file: Path) -> Path:
        """Return the folder for compiled kernels of one file, empty when the run begins."""
        digest = hashlib.sha256(str(file.resolve()).encode()).hexdigest()[:16]
        folder = self.folder / f"cache-{digest}"
        folder.mkdir(mode=0o700, exist_ok=True)
        return folder

    def close(self) -> None:
        """End the fork servers and remove the run's folder."""
        for parent in self._parents.values():
            parent.close()
        shutil.rmtree(self.folder, ignore_errors=True)
        self._open.discard(self.folder)

    @classmethod
    def remove_folders(cls) -> None:
        """Remove the folders of all sessions of this process, which is about to end."""
        for folder in cls._open:
            shutil.rmtree(folder, ignore_errors=True)
