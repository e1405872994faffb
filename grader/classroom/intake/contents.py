"""Members of a submission, independent of its container; reading a folder without following links."""

from __future__ import annotations

import enum
import os
import stat
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from grader.course.submission import MOST_BYTES

MOST_MEMBERS = 20_000
MOST_DEPTH = 24
MOST_NAME = 240  # bytes of a path
SKIPPED = {
    "__MACOSX",
    "__pycache__",
    "node_modules",
    "Thumbs.db",
    "desktop.ini",
    "Desktop.ini",
}  # left by tools, not part of a submission


class RefusedError(Exception):
    """A submission is refused as a whole; the message is the reason."""


class UnreadableError(Exception):
    """One file of a submission is left out; the message is the reason."""


class Kind(enum.Enum):
    """File type of a member."""

    FILE = "a file"
    LINK = "a link"
    OTHER = "neither a file nor a folder"


@dataclass(frozen=True)
class Member:
    """One entry of a submission; `read` returns its bytes or raises UnreadableError."""

    path: str  # in the submission, with /
    kind: Kind
    size: int
    read: Callable[[], bytes]
    modified: float | None = None  # seconds since 1970
    found: str = ""  # its original path, if `path` was changed
    dated: Callable[[], float | None] = lambda: None  # `modified`, where finding it is slow

    @property
    def place(self) -> str:
        """The path under which a person finds it."""
        return self.found or self.path


def bad_name(path: str) -> str:
    """Return what is wrong with the path of a member, or an empty string."""
    parts = path.split("/")
    if "\\" in path or ":" in parts[0]:
        return "its name has a backslash or a drive in it"
    if path.startswith("/") or any(part in ("", ".", "..") for part in parts):
        return "its name leads out of the submission"
    if any(unicodedata.category(char) in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp") for char in path):
        return "its name has characters that cannot be seen"
    if len(os.fsencode(path)) > MOST_NAME or len(parts) > MOST_DEPTH:
        return "its name is too long"
    return ""


def skipped(path: str) -> bool:
    """Whether a tool left this file; such files are ignored without a record."""
    return any(
        part in SKIPPED or (part.startswith(".") and part not in (".", "..")) for part in path.split("/")
    )


def most(size: int) -> None:
    """Raise UnreadableError for a file above the size limit of a submission."""
    if size > MOST_BYTES:
        raise UnreadableError(f"it has {size:,} bytes, at most {MOST_BYTES:,} are read")


def in_folder(root: Path) -> Iterator[Member]:
    """Yield the members of a folder without following links; RefusedError if there are too many."""
    count = 0
    for where, folders, files, descriptor in os.fwalk(root, follow_symlinks=False):
        below = os.path.relpath(where, root)
        prefix = "" if below == "." else f"{below}/"
        deep = prefix.count("/") >= MOST_DEPTH
        # fwalk lists a link to a folder among the folders but does not enter it.
        links = [name for name in folders if _is_link(name, descriptor)]
        folders[:] = [] if deep else sorted(name for name in folders if not skipped(name))
        for name in sorted([*files, *links]):
            count += 1
            if count > MOST_MEMBERS:
                raise RefusedError(f"it holds more than {MOST_MEMBERS:,} files")
            if not skipped(name):
                yield _of_folder(root, f"{prefix}{name}", name, descriptor)


def _is_link(name: str, descriptor: int) -> bool:
    return stat.S_ISLNK(os.stat(name, dir_fd=descriptor, follow_symlinks=False).st_mode)


def _of_folder(root: Path, path: str, name: str, descriptor: int) -> Member:
    facts = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
    shown = os.fsencode(path).decode("utf-8", "replace")
    if stat.S_ISLNK(facts.st_mode):
        return Member(shown, Kind.LINK, 0, _nothing)
    if not stat.S_ISREG(facts.st_mode):
        return Member(shown, Kind.OTHER, 0, _nothing)
    return Member(shown, Kind.FILE, facts.st_size, lambda: _read_below(root, path), facts.st_mtime)


def _nothing() -> bytes:
    raise UnreadableError("it is not a regular file")


def _read_below(root: Path, path: str) -> bytes:
    """Read a file, opening its path part by part: no folder can be replaced by a link in the meantime."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # opening a pipe must not block
    *folders, name = path.split("/")
    here = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for folder in folders:
            deeper = os.open(folder, flags | os.O_DIRECTORY, dir_fd=here)
            os.close(here)
            here = deeper
        with open(os.open(name, flags, dir_fd=here), "rb") as file:
            facts = os.fstat(file.fileno())
            if not stat.S_ISREG(facts.st_mode):
                raise UnreadableError("it is not a regular file")
            if facts.st_nlink > 1:
                # It may be a file of another user.
                raise UnreadableError("it is a hard link: hand in a copy")
            most(facts.st_size)
            data = file.read(MOST_BYTES + 1)
            most(len(data))
            return data
    except OSError as error:
        raise UnreadableError(f"it cannot be read: {error.strerror}") from None
    finally:
        os.close(here)
