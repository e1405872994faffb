"""Read the folders of the kernel log: every step with its snapshot, and the hash chain of the records.

They come from students: every read has a size limit and follows no link.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from grader.measure.kernel_log.record import MOST_STEPS, Record
from grader.system.files import finding, read_bytes
from grader.system.text import one_line

FOLDER, RECORD, PENDING, MARKDOWN = "kernel-log", "record.json", "pending.json", "KERNEL_LOG.md"
RECORD_BYTES, FILE_BYTES, MARKDOWN_BYTES = 2**20, 2**18, 2**22


class LogError(ValueError):
    """A step cannot be logged, or a log cannot be read; the message is for a student."""


@dataclass(frozen=True)
class Stored:
    """A stored record, the sha256 of its bytes, and its folder."""

    record: Record
    sha256: str
    folder: Path


def read(path: Path, limit: int) -> bytes:
    """Read a regular file; LogError if it is missing, a link, or larger than `limit` bytes."""
    try:
        return read_bytes(path, limit)
    except OSError as error:
        raise LogError(f"{one_line(path.name)} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise LogError(str(error)) from None


def parse(data: bytes) -> Record:
    """Parse a record; LogError with the first thing that is wrong in it."""
    try:
        return Record.model_validate_json(data)
    except ValidationError as error:
        raise LogError(f"{RECORD} is invalid: {finding(error)}") from None
    except ValueError as error:  # not a number
        raise LogError(one_line(f"{RECORD} is invalid: {error}")) from None


def folders(tree: Path) -> list[Path]:
    """List the entries of the log's folder by name; LogError if it is a link or has too many."""
    root = tree / FOLDER
    if root.is_symlink():
        raise LogError(f"{FOLDER} is a link")
    if not root.is_dir():
        return []
    with os.scandir(root) as entries:
        found = [Path(entry.path) for entry, _ in zip(entries, range(MOST_STEPS + 3), strict=False)]
    if len(found) > MOST_STEPS + 2:
        raise LogError(f"{FOLDER} has more than {MOST_STEPS} steps")
    return sorted(found)


def steps(tree: Path) -> list[Stored]:
    """Read every step in order; LogError at the first that is missing or invalid."""
    found = []
    for path in folders(tree):
        if not re.fullmatch(r"\d{4}", path.name):
            continue
        if path.name != f"{len(found) + 1:04}":
            raise LogError(f"step {len(found) + 1} is missing: run `make check-log` for details")
        data = read(path / RECORD, RECORD_BYTES)
        found.append(Stored(parse(data), hashlib.sha256(data).hexdigest(), path))
    return found


def before(earlier: Sequence[Stored], op: str) -> Stored | None:
    """Return the step that an operation's next one is compared with: the last right one, else the last."""
    mine = [one for one in earlier if one.record.op == op]
    right = [one for one in mine if one.record.status == "ok"]
    return (right or mine or [None])[-1]


def changed_lines(old: bytes, new: bytes) -> tuple[int, int]:
    """Count lines added and removed; moved lines do not count, so that the time is linear in the text."""
    was, now = Counter(old.splitlines()), Counter(new.splitlines())
    return (now - was).total(), (was - now).total()
