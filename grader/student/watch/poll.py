"""What a few files contain, and whether it has been so for long enough to be a whole save.

The files are read again and again; no library of file events (watchfiles) takes the place of that. Inotify
hears nothing of a save on another machine of an NFS share, nor through the bind mount of a container on
macOS or Windows. Polling by time stamp misses a save where the stamp is too coarse to tell two saves apart,
and stat may answer from a cache where open asks the server. No event says that a save is whole, so the quiet
time would have to pass all the same. These are a handful of small files.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from grader.system.files import read_bytes

QUIET_S = 0.3  # an editor that truncates and writes, or removes and renames, is done by then
MISSING = "missing"


@dataclass(frozen=True)
class Content:
    """A file as it was found, and since when: a hash of what is in it, or why it cannot be read."""

    digest: str
    since: float

    def is_quiet(self, now: float) -> bool:
        """Whether it has stayed like this for as long as a save may take."""
        return now - self.since >= QUIET_S


class Poller:
    """The latest content of files; `look` goes and sees."""

    def __init__(self):
        self._contents: dict[Path, Content] = {}

    def look(self, paths: Iterable[Path], now: float) -> bool:
        """Read these files at the time `now`, in seconds of a clock that only goes forward; whether any of
        them holds something new.
        """
        before = dict(self._contents)
        for path in paths:
            digest, known = _digest(path), before.get(path)
            if known is None:
                self._contents[path] = Content(digest, now - QUIET_S)  # what is there at first is no save
            elif digest != known.digest:
                self._contents[path] = Content(digest, now)
        return self._contents != before

    def digest(self, path: Path) -> str:
        """What was found at the last look."""
        return self._contents[path].digest

    def is_quiet(self, paths: Iterable[Path], now: float) -> bool:
        """Whether none of these files is being written."""
        return all(self._contents[path].is_quiet(now) for path in paths)


def _digest(path: Path) -> str:
    try:
        return hashlib.sha256(read_bytes(path)).hexdigest()
    except FileNotFoundError:
        return MISSING
    except (OSError, ValueError) as error:  # too large, a link, a folder: the grader has a verdict for it
        return f"unreadable: {error}"
