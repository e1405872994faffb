"""What a worker and all it started use, read from /proc; and the end of what outlives it."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from grader.spec import Verdict

MOST_PROCESSES = 64  # a compiler and its helpers are about ten
MOST_BYTES = 16 << 30  # of host memory that is a worker's own, those it started included
MOST_FILES, MOST_SCRATCH = 20_000, 768 << 20  # that a worker may leave in its folders
SWEEPS = 50


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


def beyond_limits(
    pid: int, workers: Collection[int], lent_bytes: int, scratch: Collection[Path] = ()
) -> Excess | None:
    """Which limit a worker and its descendants have passed together: processes, memory besides what was lent,
    and what lies in the folders that they may write to.
    """
    members = family(pid, workers)
    if len(members) > MOST_PROCESSES:
        words = f"it started {len(members)} processes, at most {MOST_PROCESSES}"
        return Excess(words, Verdict.RESOURCE_LIMIT)
    used = sum(one.own_bytes for one in members)
    if used > MOST_BYTES + lent_bytes:
        words = f"it took {used / 2**30:.1f} GiB of memory, at most {MOST_BYTES / 2**30:.0f} GiB"
        return Excess(words, Verdict.OUT_OF_MEMORY, "HOST")
    files, written = _contents(scratch)
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
            with contextlib.suppress(ChildProcessError):
                os.waitpid(one.pid, 0)
