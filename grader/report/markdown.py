"""Markdown made from records: tables, pages of paragraphs, and marked regions that are rendered again.

A region stands between `<!-- BEGIN label -->` and `<!-- END -->`, each mark alone on its line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

MOST_MARKS = 2000  # of a text that may be a student's


@dataclass(frozen=True)
class Region:
    """A region of a text: what its BEGIN says, the number of that line, and where it stands."""

    label: str
    line: int
    whole: slice  # from the mark BEGIN to the mark END
    inside: slice  # the lines between them


def table(heads: Sequence[str], rows: Iterable[Iterable[object]], align: str) -> str:
    """A table; `align` has l or r for each column, and its last letter stands for those beyond it.

    Cells are shown as str() has them. No padding: another number changes one line, not a column.
    """
    sides = align.ljust(len(heads), align[-1])
    lines = [
        "".join(f"| {head} " if head else "| " for head in heads) + "|",
        "".join("|---:" if side == "r" else "|---" for side in sides) + "|",
    ]
    return "\n".join([*lines, *(f"| {' | '.join(map(str, row))} |" for row in rows)])


def page(paragraphs: Iterable[str]) -> str:
    """Paragraphs and tables with an empty line between them."""
    return "\n\n".join(paragraphs) + "\n"


def marked(label: str, inside: str, named_end: bool = False) -> str:
    """A region with its marks; `inside` ends with a line break."""
    return f"<!-- BEGIN {label} -->\n{inside}<!-- END{f' {label}' if named_end else ''} -->"


def regions(text: str, label: str, named_ends: bool = False) -> tuple[list[Region], list[str]]:
    """The regions whose label matches a pattern, in order, and what is wrong with their marks, by line.

    With `named_ends` an END repeats the label, and one without it is no mark.
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
    """The text with what each region holds rendered again, and everything else byte for byte as it was."""
    parts, at = [], 0
    for one in found:
        parts += [text[at : one.inside.start], render(one)]
        at = one.inside.stop
    return "".join([*parts, text[at:]])
