"""Markdown from records: tables, paragraphs, and marked regions that can be replaced.

A region is the text between `<!-- BEGIN label -->` and `<!-- END -->`, each mark alone on its line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

MOST_MARKS = 2000  # in one text, which may be a student's


@dataclass(frozen=True)
class Region:
    """A region of a text: the label of its BEGIN, the number of that line, and the positions."""

    label: str
    line: int
    whole: slice  # from the mark BEGIN to the mark END
    inside: slice  # the lines between them


def table(heads: Sequence[str], rows: Iterable[Iterable[object]], align: str) -> str:
    """Return a table; `align` has l or r for each column, and its last letter also applies to further ones.

    Cells are formatted by str() and not padded, so that a new number changes one line, not a whole column.
    """
    sides = align.ljust(len(heads), align[-1])
    lines = [
        "".join(f"| {head} " if head else "| " for head in heads) + "|",
        "".join("|---:" if side == "r" else "|---" for side in sides) + "|",
    ]
    return "\n".join([*lines, *(f"| {' | '.join(map(str, row))} |" for row in rows)])


def page(paragraphs: Iterable[str]) -> str:
    """Join paragraphs and tables with an empty line between them."""
    return "\n\n".join(paragraphs) + "\n"


def marked(label: str, inside: str, named_end: bool = False) -> str:
    """Return a region with its marks; `inside` ends with a line break."""
    return f"<!-- BEGIN {label} -->\n{inside}<!-- END{f' {label}' if named_end else ''} -->"


def regions(text: str, label: str, named_ends: bool = False) -> tuple[list[Region], list[str]]:
    """Return the regions whose label matches a pattern, in order, and the problems with their marks, by line.

    With `named_ends`, an END repeats the label, and an END without a label is ignored.
    """
    ends = f" ({label})" if named_ends else "()"
    marks = re.finditer(rf"^[ \t]*<!-- (?:BEGIN ({label})|END{ends}) -->[ \t\r]*$", text, re.MULTILINE)
    found, problems, opened = [], [], None
    for number, mark in enumerate(marks, start=1):
        line = 1 + text.count("\n", 0, mark.start())
        if number > MOST_MARKS:
            problems.append(f"line {line}: more than {MOST_MARKS} marks")
            break
        if mark[1]:
            if opened:
                problems.append(f"line {line}: BEGIN {mark[1]} before the end of {opened[0].lower()}")
            opened = mark[1], line, mark
        elif opened is None or mark[2] not in ("", opened[0]):
            problems.append(f"line {line}: {f'END {mark[2]}'.rstrip()} without its BEGIN")
            opened = None
        else:
            name, begun, first = opened
            inside = slice(min(first.end() + 1, mark.start()), mark.start())
            found.append(Region(name, begun, slice(first.start(), mark.end()), inside))
            opened = None
    if opened:
        problems.append(f"line {opened[1]}: BEGIN {opened[0]} without its END")
    return found, problems


def rewrite(text: str, found: Iterable[Region], render: Callable[[Region], str]) -> str:
    """Return the text with the inside of each region rendered again and all other bytes unchanged."""
    parts, at = [], 0
    for one in found:
        parts += [text[at : one.inside.start], render(one)]
        at = one.inside.stop
    return "".join([*parts, text[at:]])
