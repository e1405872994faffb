"""Decode the bytes of a file in every way that may yield text: archives, compression, base64, escapes."""

from __future__ import annotations

import base64
import binascii
import bz2
import contextlib
import html
import io
import json
import lzma
import re
import tarfile
import urllib.parse
import zipfile
import zlib
from collections.abc import Iterator

DEEPEST = 5  # such as a page in an attribute of a page in a notebook cell in an archive
_BASE64 = re.compile(rb"[A-Za-z0-9+/_-]{80,}={0,2}|(?:[A-Za-z0-9+/]{60,76}\r?\n){2,}[A-Za-z0-9+/]*={0,2}")
_TAG = re.compile(r"<[^<>]*>")
_NUMBERED = re.compile(r"^[ \t]*\d+(?:[:|.)\t]| {1,4})", re.MULTILINE)  # a listing with line numbers
_ESCAPE = re.compile(r'\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|([nrtbf])|(["\'/\\]))')
_SPLIT = re.compile(r"[\"'],?\s*\n\s*,?[\"']")  # a notebook cell: a list of lines


def decodings(data: bytes) -> Iterator[str]:
    """Yield every text that can be decoded from the bytes, each once."""
    seen, open_ = set(), [(data, 0)]
    while open_:
        data, depth = open_.pop()
        if data in seen:
            continue
        seen.add(data)
        text = data.decode("utf-8", errors="replace")
        yield text
        yield from _of_one_kind(text)
        if depth < DEEPEST:
            open_ += [(one, depth + 1) for one in (*_unpacked(data), *_unescaped(text))]


def _unpacked(data: bytes) -> Iterator[bytes]:
    """Yield the contents of an archive, a compressed stream or base64 text."""
    if b"\0" in data:
        yield data.replace(b"\0", b"")  # UTF-16
    if data[:4] == b"PK\3\4":
        # An archive that was read as a text, and changed, is none any more.
        with contextlib.suppress(zipfile.BadZipFile), zipfile.ZipFile(io.BytesIO(data)) as archive:
            yield from (archive.read(name) for name in archive.namelist())
    for opened in (_inflated, bz2.decompress, lzma.decompress):
        try:
            yield opened(data)
        except (OSError, EOFError, ValueError, zlib.error, lzma.LZMAError):
            continue
    try:
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            yield from (archive.extractfile(one).read() for one in archive if one.isfile())
    except (tarfile.TarError, EOFError, ValueError):
        pass
    for match in () if b"\0" in data else _BASE64.finditer(data):  # everything in a picture looks like base64
        letters = re.sub(rb"\s", b"", match[0]).replace(b"-", b"+").replace(b"_", b"/").rstrip(b"=")
        try:
            yield base64.b64decode(letters + b"=" * (-len(letters) % 4))
        except binascii.Error:
            continue


def _inflated(data: bytes) -> bytes:
    return zlib.decompress(data, wbits=47)  # gzip or zlib, detected by header


def _of_one_kind(text: str) -> Iterator[str]:
    """Yield the text without one kind of escapes, where another kind would change what is left of it."""
    found = {one for one in (_html(text), _strings(text), _url(text)) if one != text}
    if len(found) > 1:
        yield from found


def _html(text: str) -> str:
    return html.unescape(text) if "&" in text else text


def _strings(text: str) -> str:
    return _ESCAPE.sub(_plain_escape, _SPLIT.sub("", text)) if "\\" in text else text


def _url(text: str) -> str:
    return urllib.parse.unquote(text) if "%" in text else text


def _unescaped(text: str) -> Iterator[bytes]:
    """Yield the text without one layer of escapes, without tags, and without line numbers.

    One layer of HTML, JSON and URL escapes together: apart, a page would have a text for each order of them.
    """
    for one in (
        _url(_strings(_html(text))),
        _TAG.sub("", text) if "<" in text else text,
        _NUMBERED.sub("", text),
    ):
        if one != text:
            yield one.encode("utf-8", errors="replace")


def _plain_escape(match: re.Match) -> str:
    if match[1] or match[2]:
        return chr(int(match[1] or match[2], 16))
    return json.loads(f'"\\{match[3]}"') if match[3] else match[4]
