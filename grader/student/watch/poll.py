"""Poll the contents of a few files, and detect when a save is complete.

The files are read repeatedly, without a library of file events such as watchfiles. Inotify does not report a
save on another machine of an NFS share, nor one through the bind mount of a container on macOS or Windows.
Polling by time stamp misses a save if the stamp is too coarse to tell two saves apart, and stat may be
answered from a cache, whereas open asks the server. No event says that a save is complete, so a quiet time
would be needed anyway. The files are few and small.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from grader.system.files import read_bytes

QUIET_S = 0.3  # seconds in which an editor that truncates and writes, or removes and renames, is done
MISSING = "missing"


@dataclass(frozen=True)
class Content:
    """A hash of a file's content, or why it cannot be read, and the time of its last change in seconds."""

    digest: str
    since: float

    def is_quiet(self, now: float) -> bool:
        """Whether it has been unchanged for as long as a save may take."""
        return now - self.since >= QUIET_S


class Poller:
    """The latest known content of files; `look` updates it."""

    def __init__(self):
        self._contents: dict[Path, Content] = {}

    def look(self, paths: Iterable[Path], now: float) -> bool:
        """Read these files and return whether any has changed; `now` is in seconds of a monotonic clock."""
        before = dict(self._contents)
        for path in paths:
            digest, known = _digest(path), before.get(path)
            if known is None:
                self._contents[path] = Content(digest, now - QUIET_S)  # the first content is not a new save
            elif digest != known.digest:
                self._contents[path] = Content(digest, now)
        return self._contents != before

    def digest(self, path: Path) -> str:
        """Return the file's hash as of the last look."""
        return self._contents[path].digest

    def is_quiet(self, paths: Iterable[Path], now: float) -> bool:
        """Whether none of these files is being written."""
        return all(self._contents[path].is_quiet(now) for path in paths)


def _digest(path: Path) -> str:
    try:
        return hashlib.sha256(read_bytes(path)).hexdigest()
    except FileNotFoundError:
        return MISSING
    except (OSError, ValueError) as error:  # too large, a link, a folder: grading reports it with a verdict
        return f"unreadable: {error}"
