"""Find answers in a text: the code of every task, and every wrong or alternative solution.

Texts are compared by letters and digits only, so indentation, quotes, comment signs and the `+` of a patch
hide nothing. Renamed variables or rewritten code are not detected. Lists of configs are compared by their
numbers, because code, a table and the autotuner's output have little else in common.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from grader.course.skeleton import render, render_native

RUN, STRIDE = 64, 8  # a match of RUN characters is an answer; texts are searched at every STRIDE-th position
SHORTEST = 32  # shorter regions are idioms that any text may contain
CODE = (".py", ".cu", ".cuh")
_TASKS = re.compile(
    r"^ *(?:#|//) (BEGIN TODO|BONUS) (\d+):.*\n(?: *(?:#|//)(?! END ).*\n)*((?:.*\n)*?)"
    r" *(?:#|//) END (?:TODO|BONUS) \2$",
    re.MULTILINE,
)
_COMMENTS = re.compile(r"^ *(?:#|//).*\n?", re.MULTILINE)
_NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?(?!\w)")
ROWS, HEAD = 3, 3  # a table has at least ROWS rows, each starting with HEAD consecutive numbers
APART = 2  # the other numbers of a row may be mixed with this many foreign numbers
MOST = 0.75  # three of four configs of a list are an answer
Row = tuple[str, ...]
# The README of a task gives the interface, so an interface is not an answer.
_INTERFACE = re.compile(r"\bdef \w+\([^()]*(?:\([^()]*\)[^()]*)*\)[^:\n]*:|extern \"C\"[^{;]*")


def plain(text: str) -> str:
    """Return the ASCII letters and digits of a text."""
    return re.sub(r"[^A-Za-z0-9]+", "", text)


def task_regions(text: str) -> list[str]:
    """Return the code of every task and bonus of a solution, without the comments that students get."""
    return [match[3] for match in _TASKS.finditer(text)]


def windows(text: str, step: int = 1) -> list[str]:
    """Return all substrings of RUN characters that start at every `step`-th position."""
    return [text[at : at + RUN] for at in range(0, len(text) - RUN + 1, step)]


def number_tables(code: str) -> Iterator[frozenset[Row]]:
    """Yield the lists in Python code with at least ROWS rows of at least HEAD numbers, as sets of rows."""
    try:
        tree = ast.parse(textwrap.dedent(code))
    except SyntaxError:
        return
    for node in ast.walk(tree):
        rows = [_numbers_of(row) for row in node.elts] if isinstance(node, ast.List | ast.Tuple) else []
        if len(rows) >= ROWS and min(map(len, rows)) >= HEAD:
            yield frozenset(rows)


def _numbers_of(row: ast.expr) -> Row:
    found = [one.value for one in ast.walk(row) if isinstance(one, ast.Constant)]
    return tuple(str(value) for value in found if type(value) is int)


@dataclass(frozen=True, eq=False)
class Answers:
    """Substrings of long answers, short answers, and tables of numbers, each with its file."""

    runs: dict[str, str]
    shorts: dict[str, str]
    tables: dict[frozenset[Row], str] = field(default_factory=dict)

    def found_in(self, text: str) -> str | None:
        """Return the file whose answer the text contains, or None."""
        letters = plain(text)
        for run in windows(letters, STRIDE):
            if run in self.runs:
                return self.runs[run]
        for short, file in self.shorts.items():
            if short in letters:
                return file
        shown = self._rows_in(text)
        return next((f for table, f in self.tables.items() if len(table & shown) >= MOST * len(table)), None)

    def _rows_in(self, text: str) -> set[Row]:
        """Return the rows in a text: their first HEAD numbers in sequence, and the others closely after.

        The autotuner prints warps before stages, with other constants in between.
        """
        rows = {row for table in self.tables for row in table}
        heads = {row[:HEAD]: [one for one in rows if one[:HEAD] == row[:HEAD]] for row in rows}
        numbers, shown = _NUMBER.findall(text), set()
        for at, head in enumerate(zip(*(numbers[start:] for start in range(HEAD)), strict=False)):
            for row in heads.get(head, ()):
                behind = Counter(numbers[at + HEAD : at + len(row) + APART])
                if not Counter(row[HEAD:]) - behind:
                    shown.add(row)
        return shown


def collect(root: Path) -> Answers:
    """Collect the answers of a checkout. Raises FileNotFoundError if it has none."""
    runs, shorts, tables, public, others = {}, {}, {}, set(), {}
    for path in sorted((root / "solutions").rglob("*")):
        if path.suffix not in CODE:
            continue
        name, text = str(path.relative_to(root)), path.read_text("utf-8", errors="replace")
        skeleton = _skeleton(path, text)
        for spelling in _spellings(skeleton or ""):
            public.update(windows(plain(spelling)))
        regions = [text] if skeleton is None else task_regions(text)
        for region in regions:
            letters = plain(_INTERFACE.sub(" ", region))
            if SHORTEST <= len(letters) < RUN + STRIDE:
                shorts[letters] = name
            for spelling in _spellings(region):
                found = windows(plain(_INTERFACE.sub(" ", spelling)))
                (others if skeleton is None else runs).update(dict.fromkeys(found, name))
            tables.update(dict.fromkeys(number_tables(region), name))
    # A task is an answer in every file, also where a skeleton or a given file shows it. The other files are
    # whole: what skeletons give is no answer there, nor is a long row of numbers, such as operands.
    runs = {run: name for run, name in others.items() if run not in public and not _mostly_digits(run)} | runs
    if not runs:
        raise FileNotFoundError(f"no answer below {root}, so none to look for")
    return Answers(runs, shorts, tables)


def _spellings(code: str) -> tuple[str, str]:
    """Return the code with and without comments, because a copy may lack them."""
    return code, _COMMENTS.sub("", code)


def _mostly_digits(run: str) -> bool:
    """Whether more than half of the characters are digits."""
    return sum(map(str.isdigit, run)) > RUN // 2


def _skeleton(path: Path, text: str) -> str | None:
    """Return the skeleton that students get of a solution; None if they get nothing."""
    if {"wrong", "variants", "kernel-log"} & set(path.parts):
        return None
    try:
        return (render if path.suffix == ".py" else render_native)(text)
    except (ValueError, SyntaxError):
        return None
