"""Limits for a worker and the processes that it started: processes, host memory, files in its folders."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from grader.course.spec import Reason, Verdict
from grader.system.process_tree import family

MOST_PROCESSES = 64  # a compiler and its helpers are about ten
MOST_BYTES = 8 << 30  # of host memory, with the processes that it started, without the lent memory
MOST_FILES, MOST_SCRATCH = 20_000, 768 << 20  # files and bytes in its folders, and in files without a name


@dataclass(frozen=True)
class Excess:
    """A limit that was exceeded."""

    words: str
    verdict: Verdict
    reason: Reason = Reason.NONE


def _own_bytes(pid: int) -> int:
    """Return a process's resident bytes without pages of files; psutil counts RssShmem among those."""
    with contextlib.suppress(OSError):
        lines = Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines()
        return sum(1024 * int(line.split()[1]) for line in lines if line.startswith(("RssAnon", "RssShmem")))
    return 0


def _share(pid: int) -> int:
    """Return a process's share of its memory, which counts pages shared by forks once; slower to read."""
    # psutil's Pss includes the pages of files.
    with contextlib.suppress(OSError):
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        return sum(
            1024 * int(line.split()[1]) for line in lines if line.startswith(("Pss_Anon", "Pss_Shmem"))
        )
    return 0


def _unnamed_bytes(pid: int, seen: set[tuple[int, int]]) -> int:
    """Return the bytes on disk or in memory of the files without a name that a process holds.

    These are files in memory, deleted files, and shared memory. A descriptor or a mapping holds them, and
    neither a folder nor the resident pages of a process show all of them. Files in `seen`, by device and
    inode, do not count; the others are added to it. Mappings can be looked at by root only.
    """
    held = 0
    for folder in ("fd", "map_files"):
        try:
            names = os.listdir(f"/proc/{pid}/{folder}")
        except OSError:
            continue
        for name in names:
            try:
                found = os.stat(f"/proc/{pid}/{folder}/{name}")
            except OSError:
                continue
            if found.st_nlink == 0 and stat.S_ISREG(found.st_mode):
                key = (found.st_dev, found.st_ino)
                held += 0 if key in seen else 512 * found.st_blocks
                seen.add(key)
    return held


def beyond_limits(pid: int, workers: Collection[int], lent: int | None) -> Excess | None:
    """Return the limit that a worker and its descendants exceed together.

    `lent` is the descriptor of the lent memory, which does not count; None if there is none on this host.
    """
    facts = os.fstat(lent) if lent is not None else None
    lent_bytes = 512 * facts.st_blocks if facts else 0  # only pages that were touched take memory
    members = family(pid, workers)
    if len(members) > MOST_PROCESSES:
        words = f"the file's process started {len(members)} processes; at most {MOST_PROCESSES} are allowed"
        return Excess(words, Verdict.RESOURCE_LIMIT)
    most = MOST_BYTES + lent_bytes
    used = sum(_own_bytes(one.pid) for one in members)
    if used > most:
        used = sum(_share(one.pid) for one in members)
    if used > most:
        words = f"it used {used / 2**30:.1f} GiB of host memory; {MOST_BYTES / 2**30:.0f} GiB are allowed"
        return Excess(words, Verdict.OUT_OF_MEMORY, Reason.HOST)
    seen = {(facts.st_dev, facts.st_ino)} if facts else set()
    held = sum(_unnamed_bytes(one.pid, seen) for one in members)
    if held > MOST_SCRATCH:
        words = f"it holds {held / 2**20:.0f} MiB in files in memory and in deleted files"
        return Excess(f"{words}; {MOST_SCRATCH >> 20} MiB are allowed", Verdict.RESOURCE_LIMIT)
    return None


def too_much_written(folders: Collection[Path]) -> Excess | None:
    """Return the limit that the files in a worker's folders exceed; None if they exceed none."""
    files, written = _contents(folders)
    if files > MOST_FILES or written > MOST_SCRATCH:
        most = f"at most {MOST_FILES} with {MOST_SCRATCH >> 20} MiB are allowed"
        words = f"it wrote {files} files and folders with {written / 2**20:.0f} MiB; {most}"
        return Excess(words, Verdict.RESOURCE_LIMIT)
    return None


def _contents(folders: Collection[Path]) -> tuple[int, int]:
    """Count the files and folders below these folders, and the files' bytes; stops once there are too many.

    A folder without files counts as well: it takes an inode and the time of every later look.
    """
    count = written = 0
    waiting = [os.fspath(folder) for folder in folders]
    while waiting:
        with contextlib.suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                count += 1
                if count > MOST_FILES:
                    return count, written
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
                    continue
                with contextlib.suppress(OSError):
                    written += entry.stat(follow_symlinks=False).st_size
    return count, written
