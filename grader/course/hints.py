"""Read the hints of a lab from its README, the only place that has them; imports no torch."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_HINT = re.compile(
    r"<details><summary>Hint (?P<number>\d+), level (?P<level>\d): (?P<title>.*?)</summary>\n"
    r"(?P<body>.*?)</details>",
    re.DOTALL,
)
_ROW = re.compile(r"^\|(.+)\|$", re.MULTILINE)
_PRE = re.compile(r"<pre>\n?(.*?)</pre>", re.DOTALL)


@dataclass(frozen=True)
class Hint:
    """One level of a hint: its title, and its text as pairs (is code, text) from top to bottom."""

    number: int
    level: int
    title: str
    parts: tuple[tuple[bool, str], ...]


def hints_of(readme: str) -> dict[int, dict[int, Hint]]:
    """Return hints by number and level; ValueError if there is no hint, or one lacks a level."""
    found: dict[int, dict[int, Hint]] = {}
    for match in _HINT.finditer(readme):
        number, level = int(match["number"]), int(match["level"])
        hint = Hint(number, level, _words(match["title"]), tuple(_parts(match["body"])))
        found.setdefault(number, {})[level] = hint
    if not found:
        raise ValueError("it has no hints, or they are not in the expected form")
    for number, levels in found.items():
        if sorted(levels) != list(range(1, len(levels) + 1)):
            raise ValueError(f"hint {number} lacks a level")
    return found


def _parts(body: str) -> Iterator[tuple[bool, str]]:
    for at, marked in enumerate(_PRE.split(body)):
        is_code = at % 2 == 1
        text = html.unescape(re.sub(r"</?[a-z]+>", "", marked)).rstrip() if is_code else _words(marked)
        if text:
            yield is_code, text


def _words(text: str) -> str:
    """Return text on one line, without tags and with code in backticks."""
    text = re.sub(r"<code>(.*?)</code>", r"`\1`", text, flags=re.DOTALL)
    return " ".join(html.unescape(re.sub(r"</?[a-z]+>", "", text)).split())


def todo_hints(readme: str) -> dict[tuple[str, int], int]:
    """Return the hint for each TODO, by file and number, from the README's table of TODOs and hints.

    The file is empty if the table names none.
    """
    columns: list[str] = []
    blocks: list[tuple[list[str], list[tuple[int, int]]]] = []  # files, and (TODO, hint) of their rows
    for match in _ROW.finditer(readme):
        cells = [cell.strip() for cell in match[1].split("|")]
        if "TODO" in cells and "hint" in cells:
            columns, blocks = cells, [([], [])]
            continue
        row = dict(zip(columns, cells, strict=False))
        if len(cells) != len(columns) or not row["hint"].isdigit():
            continue
        named = re.findall(r"`([^`]+)`", row.get("file", ""))
        if named and not row["file"].startswith("then "):  # "then" adds a file to the rows above
            blocks.append(([], []))
        blocks[-1][0].extend(named)
        blocks[-1][1].extend((int(todo), int(row["hint"])) for todo in re.findall(r"\d+", row["TODO"]))
    return {(file, todo): hint for files, rows in blocks for file in files or [""] for todo, hint in rows}


def hint_of_todo(hints: dict[tuple[str, int], int], file: str, todo: int) -> int | None:
    """Return the hint for a TODO of a file, None if the README names none."""
    return hints.get((Path(file).name, todo), hints.get(("", todo)))
