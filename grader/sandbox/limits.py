"""What a worker and all it started may use: processes, memory of the host, files in its folders."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from grader.course.spec import Reason, Verdict
from grader.system.process_tree import family

MOST_PROCESSES = 64  # a compiler and its helpers are about ten
MOST_BYTES = 8 << 30  # of host memory that is a worker's own, those it started included
MOST_FILES, MOST_SCRATCH = 20_000, 768 << 20  # that a worker may leave in its folders


@dataclass(frozen=True)
class Excess:
    """Which limit was passed."""

    words: str
    verdict: Verdict
    reason: Reason = Reason.NONE


def _own_bytes(pid: int) -> int:
    """What is resident and not of a file; psutil does not tell RssShmem from the pages of files."""
    with contextlib.suppress(OSError):
        lines = Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines()
        return sum(1024 * int(line.split()[1]) for line in lines if line.startswith(("RssAnon", "RssShmem")))
    return 0


def _share(pid: int) -> int:
    """Slower to read than _own_bytes; over several processes it counts once what forks have in common."""
    # psutil's Pss counts the pages of files, too.
    with contextlib.suppress(OSError):
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        return sum(
            1024 * int(line.split()[1]) for line in lines if line.startswith(("Pss_Anon", "Pss_Shmem"))
        )
    return 0


def beyond_limits(pid: int, workers: Collection[int], lent_bytes: int) -> Excess | None:
    """Which limit a worker and its descendants have passed together, besides the memory that it was lent."""
    members = family(pid, workers)
    if len(members) > MOST_PROCESSES:
        words = f"it started {len(members)} processes, at most {MOST_PROCESSES}"
        return Excess(words, Verdict.RESOURCE_LIMIT)
    most = MOST_BYTES + lent_bytes
    used = sum(_own_bytes(one.pid) for one in members)
    if used > most:
        used = sum(_share(one.pid) for one in members)
    if used > most:
        words = f"it took {used / 2**30:.1f} GiB of memory, at most {MOST_BYTES / 2**30:.0f} GiB"
        return Excess(words, Verdict.OUT_OF_MEMORY, Reason.HOST)
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
