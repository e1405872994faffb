"""Check which records a plot was drawn from, by the hashes in its metadata; the plot may be a student's."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from xml.parsers import expat

from grader.results.records import read
from grader.system.text import one_line

MOST_BYTES = 8 << 20  # of a plot
_DESCRIPTION = "http://purl.org/dc/elements/1.1/ description"


def hashes(records: Iterable[tuple[str, bytes]]) -> str:
    """Name and sha256 of each record: `survey.json sha256:...; ...`."""
    return "; ".join(f"{name} sha256:{hashlib.sha256(data).hexdigest()}" for name, data in records)


def problem(
    path: Path, name: str, records: Iterable[tuple[str, bytes]], again: str, other: str = "other records"
) -> str:
    """Say in one line why the plot at `path` was not drawn from these records; empty if it was.

    The message calls the plot `name`. `again` says how to draw it, `other` what it was drawn from instead.
    """
    try:
        svg = read(path, name, MOST_BYTES)
    except FileNotFoundError:
        return f"{name} is missing: {again}"
    except ValueError as error:
        return str(error)
    try:
        same = described(svg) == hashes(records)
    except ValueError as error:
        return one_line(f"{name}: {error}")
    return "" if same else f"{name} was drawn from {other}: {again}"


def described(svg: bytes) -> str:
    """Return the description in the metadata of an SVG.

    Raises ValueError if the file is not plain XML or has no description. A declaration of an entity is
    refused before anything is expanded, so that a small file cannot become a large one.
    """
    parser = expat.ParserCreate(namespace_separator=" ")
    parser.buffer_text = True
    texts: list[str] = []
    inside = False

    def start(name, _attributes):
        nonlocal inside
        if name == _DESCRIPTION:
            inside = True
            texts.append("")

    def end(_name):
        nonlocal inside
        inside = False

    def text(data):
        if inside:
            texts[-1] += data

    def refuse(*_):
        raise ValueError("it declares entities")

    parser.StartElementHandler, parser.EndElementHandler, parser.CharacterDataHandler = start, end, text
    parser.EntityDeclHandler = parser.UnparsedEntityDeclHandler = refuse
    parser.ExternalEntityRefHandler = refuse
    try:
        parser.Parse(svg, True)
    except expat.ExpatError as error:
        raise ValueError(f"it is not an SVG: {error}") from None
    if len(texts) != 1:
        raise ValueError("its metadata has no description of the records it was drawn from")
    return texts[0]
