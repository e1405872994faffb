"""Read a submitted zip archive, with limits on its size, its list of files and each file."""

from __future__ import annotations

import calendar
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

from grader.classroom.intake.contents import MOST_MEMBERS, Kind, Member, RefusedError, UnreadableError, most
from grader.course.submission import MOST_BYTES

MOST_ARCHIVE = 64 << 20  # bytes
MOST_LIST = 4 << 20  # bytes of the central directory: about 40,000 files
MOST_UNPACKED = 1 << 30  # declared bytes of all files together
MOST_RATIO = 200  # compression ratio of a file above PLAIN bytes
PLAIN = 64 << 10
END, END_OF_64 = b"PK\5\6", b"PK\6\7"


def in_zip(path: Path, prefix: str = "") -> Iterator[Member]:
    """Yield the members of an archive. Raises RefusedError if it is damaged, encrypted or too large."""
    _check_size(path)
    try:
        archive = zipfile.ZipFile(path)
    except (zipfile.BadZipFile, OSError, ValueError, struct.error, EOFError, NotImplementedError) as error:
        raise RefusedError(f"the archive is damaged: {error}") from None
    listed = [one for one in archive.infolist() if not one.filename.endswith("/")]
    if len(listed) > MOST_MEMBERS:
        raise RefusedError(f"the archive holds more than {MOST_MEMBERS:,} files")
    if sum(one.file_size for one in listed) > MOST_UNPACKED:
        raise RefusedError(f"the archive unpacks to more than {MOST_UNPACKED >> 20} MiB")
    if listed and all(one.flag_bits & 1 for one in listed):
        raise RefusedError("the archive is encrypted: hand it in without a password")
    for one in listed:
        # zipfile cuts a name at a zero byte; the original name shows what was hidden.
        name = one.orig_filename if "\0" in one.orig_filename else one.filename
        yield Member(
            f"{prefix}{name}", _kind(one), one.file_size, lambda one=one: _read(archive, one), _time(one)
        )


def _check_size(path: Path) -> None:
    """Raise RefusedError if the archive or its list of files is too large."""
    size = path.stat().st_size
    if size > MOST_ARCHIVE:
        raise RefusedError(f"the archive has {size >> 20} MiB, at most {MOST_ARCHIVE >> 20} are opened")
    with open(path, "rb") as file:
        file.seek(max(0, size - 22 - 0xFFFF - 20))  # end record, its comment, and the zip64 locator
        tail = file.read()
    at = tail.rfind(END)
    if at < 0 or len(tail) < at + 22:
        raise RefusedError("the archive is damaged: its end is missing")
    if tail[max(0, at - 20) : at].startswith(END_OF_64):
        raise RefusedError("the archive is in zip64 format: use a plain zip")
    (list_bytes,) = struct.unpack_from("<I", tail, at + 12)
    if list_bytes > MOST_LIST:
        raise RefusedError(f"the archive lists more than {MOST_MEMBERS:,} files")


def _kind(one: zipfile.ZipInfo) -> Kind:
    kind = stat.S_IFMT(one.external_attr >> 16)
    if stat.S_ISLNK(kind):
        return Kind.LINK
    return Kind.FILE if kind in (0, stat.S_IFREG) else Kind.OTHER


def _time(one: zipfile.ZipInfo) -> float | None:
    """Return the modification time in seconds since 1970; zip stores local time, which is read as UTC."""
    try:
        return float(calendar.timegm((*one.date_time, 0, 0, 0)))
    except (ValueError, OverflowError):
        return None


def _read(archive: zipfile.ZipFile, one: zipfile.ZipInfo) -> bytes:
    if one.flag_bits & 1:
        raise UnreadableError("it is encrypted")
    if one.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise UnreadableError("its compression method is not supported: use a plain zip")
    most(one.file_size)
    if one.file_size > PLAIN and one.file_size > MOST_RATIO * max(1, one.compress_size):
        ratio = one.file_size // max(1, one.compress_size)
        raise UnreadableError(f"its compression ratio is {ratio} to 1, at most {MOST_RATIO} is allowed")
    try:
        with archive.open(one) as file:
            data = file.read(MOST_BYTES + 1)  # the declared size may be wrong
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError, NotImplementedError) as error:
        raise UnreadableError(f"it is damaged: {error}") from None
    most(len(data))
    return data
