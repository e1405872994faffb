"""What a worker and all it started use, read from /proc; and the end of what outlives it."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from grader.spec import Verdict

MOST_PROCESSES = 64  # a compiler and its helpers are about ten
MOST_BYTES = 8 << 30  # of host memory that is a worker's own, those it started included
MOST_FILES, MOST_SCRATCH = 20_000, 768 << 20  # that a worker may leave in its folders
SWEEPS = 50
WAIT_S = 20.0  # a process inside the GPU's driver can take its time to die


@dataclass(frozen=True)
class Process:
    """One line of /proc."""

    pid: int
    parent: int
    session: int
    own_bytes: int  # resident and not of a file


@dataclass(frozen=True)
class Excess:
    """Which limit was passed."""

    words: str
    verdict: Verdict
    reason: str = ""


def running() -> list[Process]:
    """All processes that can be seen; one that ends meanwhile is left out."""
    found = []
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError, ValueError, IndexError):
            # The name stands in brackets and may hold anything, brackets and blanks too.
            fields = Path(entry.path, "stat").read_text(errors="replace").rpartition(")")[2].split()
            found.append(Process(int(entry.name), int(fields[1]), int(fields[3]), _own_bytes(entry.path)))
    return found


def _share(pid: int) -> int:
    """Slower to read than own_bytes; over several processes it counts once what forks have in common."""
    with contextlib.suppress(OSError):
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        return sum(
            1024 * int(line.split()[1]) for line in lines if line.startswith(("Pss_Anon", "Pss_Shmem"))
        )
    return 0


def _own_bytes(folder: str) -> int:
    status = dict(
        line.split(":", 1)
        for line in Path(folder, "status").read_text(errors="replace").splitlines()
        if ":" in line
    )
    return sum(1024 * int(status.get(name, "0").split()[0]) for name in ("RssAnon", "RssShmem"))


def family(pid: int, workers: Collection[int]) -> list[Process]:
    """A worker, its descendants, and orphans of some worker that this process has inherited."""
    everyone = running()
    members = {pid}
    while True:
        more = {
            one.pid
            for one in everyone
            if one.pid not in members and (one.parent in members or _orphan(one, workers))
        }
        if not more:
            return [one for one in everyone if one.pid in members]
        members |= more


def _orphan(one: Process, workers: Collection[int]) -> bool:
    """Inherited from a worker that ended, or that has forked twice: a child of ours in a session not ours."""
    return one.parent == os.getpid() and one.session != os.getsid(0) and one.pid not in workers


def beyond_limits(pid: int, workers: Collection[int], lent_bytes: int) -> Excess | None:
    """Which limit a worker and its descendants have passed together, besides the memory that it was lent."""
    members = family(pid, workers)
    if len(members) > MOST_PROCESSES:
        words = f"it started {len(members)} processes, at most {MOST_PROCESSES}"
        return Excess(words, Verdict.RESOURCE_LIMIT)
    most = MOST_BYTES + lent_bytes
    used = sum(one.own_bytes for one in members)
    if used > most:
        used = sum(_share(one.pid) for one in members)
    if used > most:
        words = f"it took {used / 2**30:.1f} GiB of memory, at most {MOST_BYTES / 2**30:.0f} GiB"
        return Excess(words, Verdict.OUT_OF_MEMORY, "HOST")
    return None


def too_much_written(folders: Collection[Path]) -> Excess | None:
    """Whether the folders that a worker may write to hold more than they may."""
    files, written = _contents(folders)
    if files > MOST_FILES or written > MOST_SCRATCH:
        most = f"at most {MOST_FILES} of {MOST_SCRATCH >> 20} MiB"
        words = f"it wrote {files} files of {written / 2**20:.0f} MiB, {most}"
        return Excess(words, Verdict.RESOURCE_LIMIT)
    return None


def _contents(folders: Collection[Path]) -> tuple[int, int]:
    """Number of files below these folders and their bytes; stops counting once there are too many."""
    files = written = 0
    for folder in folders:
        for where, _, names in os.walk(folder):
            for name in names:
                with contextlib.suppress(OSError):
                    written += os.lstat(os.path.join(where, name)).st_size
                files += 1
            if files > MOST_FILES:
                return files, written
    return files, written


def wait_for(pid: int) -> None:
    """Reap a child that was killed; gives up after WAIT_S on one that the kernel does not let go."""
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        try:
            if os.waitpid(pid, os.WNOHANG)[0]:
                return
        except ChildProcessError:
            return
        time.sleep(0.0005)


def reap_orphans(workers: Collection[int]) -> None:
    """Kill what dead workers have left, until nothing more turns up; to be called while no worker is being
    born.
    """
    for _ in range(SWEEPS):
        left = [one for one in running() if _orphan(one, workers)]
        if not left:
            return
        for one in left:
            with contextlib.suppress(ProcessLookupError, ChildProcessError, PermissionError):
                os.kill(one.pid, signal.SIGKILL)
        for one in left:
            wait_for(one.pid)
