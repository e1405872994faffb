"""Read a submitted .tar.gz archive, with limits on its size, on what it unpacks to and on each file."""

from __future__ import annotations

import contextlib
import functools
import gzip
import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from grader.classroom.intake.contents import MOST_MEMBERS, Kind, Member, RefusedError, UnreadableError, most
from grader.course.submission import MOST_BYTES

SUFFIXES = (".tar.gz", ".tgz")
MOST_ARCHIVE = 64 << 20  # bytes
MOST_UNPACKED = 256 << 20  # bytes: a tar archive has no list of its files, so all of it is unpacked once
MOST_EXTRA = 1 << 16  # bytes of a header's own fields, which tarfile reads into memory
BLOCK = 1 << 20


@contextlib.contextmanager
def opened(path: Path, prefix: str = "") -> Iterator[Iterator[Member]]:
    """Yield the members of an archive. Raises RefusedError if it is damaged or too large."""
    size = path.stat().st_size
    if size > MOST_ARCHIVE:
        raise RefusedError(f"the archive has {size >> 20} MiB, at most {MOST_ARCHIVE >> 20} are opened")
    with tempfile.TemporaryFile() as unpacked:
        _unpack(path, unpacked)
        yield _members(unpacked, prefix)


def _unpack(path: Path, target: IO[bytes]) -> None:
    """Decompress into a file up to the limit."""
    total = 0
    try:
        with gzip.open(path, "rb") as source:
            while block := source.read(BLOCK):
                total += len(block)
                if total > MOST_UNPACKED:
                    raise RefusedError(f"the archive unpacks to more than {MOST_UNPACKED >> 20} MiB")
                target.write(block)
    except (OSError, EOFError, zlib.error) as error:
        raise RefusedError(f"the archive is damaged: {error}") from None
    target.seek(0)


def _members(unpacked: IO[bytes], prefix: str) -> Iterator[Member]:
    count = 0
    try:
        with tarfile.open(fileobj=unpacked, mode="r:", tarinfo=_Limited) as archive:
            for one in archive:
                count += 1
                if count > MOST_MEMBERS:
                    raise RefusedError(f"the archive holds more than {MOST_MEMBERS:,} files")
                archive.members.clear()  # tarfile keeps every one, each with a copy of the global headers
                one.pax_headers = {}
                if one.isdir():
                    continue
                # "./" is how `tar czf x.tar.gz .` begins every name.
                name = f"{prefix}{one.name.removeprefix('./')}"
                read = functools.partial(_read, unpacked, one)
                yield Member(name, _kind(one), one.size, read, float(one.mtime))
    except (tarfile.TarError, OSError, EOFError, ValueError, OverflowError) as error:
        raise RefusedError(f"the archive is damaged: {error}") from None


class _Limited(tarfile.TarInfo):
    """Refuses headers that would make tarfile read a lot into memory."""

    def _proc_member(self, archive):
        extended = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)
        if self.type in (*extended, tarfile.SOLARIS_XHDTYPE) and self.size > MOST_EXTRA:
            raise tarfile.ReadError("the name of a file is too long")
        return super()._proc_member(archive)


def _kind(one: tarfile.TarInfo) -> Kind:
    if one.issym() or one.islnk():
        return Kind.LINK
    return Kind.FILE if one.isreg() and not one.issparse() else Kind.OTHER


def _read(unpacked: IO[bytes], one: tarfile.TarInfo) -> bytes:
    most(one.size)
    here = unpacked.tell()
    try:
        unpacked.seek(one.offset_data)
        data = unpacked.read(min(one.size, MOST_BYTES + 1))
    finally:
        unpacked.seek(here)
    if len(data) < one.size:
        raise UnreadableError("it is damaged: its end is missing")
    most(len(data))
    return data
