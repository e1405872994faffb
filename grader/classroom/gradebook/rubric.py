"""Manually graded points, from a CSV with columns student,criterion,points,of[,unit][,note].

They stay in the run folder and are added to the grader's points, also after a regrading.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from grader.course.catalog import CAPSTONE
from grader.system.files import read_bytes, replace

COLUMNS = ("student", "criterion", "points", "of")
OPTIONAL = ("unit", "note")
MOST_BYTES = 8 << 20


class RubricError(Exception):
    """The rubric cannot be used; the message names file and line."""


@dataclass(frozen=True)
class Given:
    """Points of one student for one criterion."""

    student: str
    criterion: str
    points: float
    of: float
    unit: str
    note: str = ""

    @property
    def key(self) -> tuple[str, str, str]:
        """The fields that identify a line; each key occurs once."""
        return self.student, self.unit, self.criterion


def read(path: Path, students: Collection[str], units: Collection[str]) -> list[Given]:
    """Read a rubric. Raises RubricError for unknown students or units, too many points or duplicates."""
    try:
        text = read_bytes(path, MOST_BYTES).decode("utf-8-sig")
    except (OSError, ValueError) as error:
        raise RubricError(f"{path}: cannot be read as UTF-8 text: {error}") from None
    rows = csv.reader(io.StringIO(text))
    columns = [cell.strip().lower() for cell in next(rows, [])]
    missing = [name for name in COLUMNS if name not in columns]
    strange = [name or "an empty one" for name in columns if name not in COLUMNS + OPTIONAL]
    if missing or strange:
        words = f"missing: {', '.join(missing)}" if missing else f"unknown: {', '.join(strange)}"
        raise RubricError(f"{path}:1: columns are {', '.join(COLUMNS)}, unit and note; {words}")
    found: dict[tuple[str, str, str], int] = {}
    given = []
    for row in rows:
        cells = [cell.strip() for cell in row]
        if not any(cells):
            continue
        where = f"{path}:{rows.line_num}"
        if len(cells) > len(columns):
            raise RubricError(f"{where}: {len(cells)} cells for {len(columns)} columns; a comma needs quotes")
        one = _line(where, dict(zip(columns, cells, strict=False)), students, units)
        if one.key in found:
            words = f"{one.student} has {one.criterion} in line {found[one.key]} already"
            raise RubricError(f"{where}: {words}")
        found[one.key] = rows.line_num
        given.append(one)
    _agree(path, given)
    return given


def _line(where: str, cells: dict[str, str], students: Collection[str], units: Collection[str]) -> Given:
    student, unit = cells.get("student", ""), cells.get("unit") or CAPSTONE.name
    criterion = cells.get("criterion", "")
    if student not in students:
        raise RubricError(f"{where}: no student {student or '(empty)'} in this class run")
    if unit not in units:
        raise RubricError(f"{where}: {unit} was not graded in this class run; it has {', '.join(units)}")
    if not criterion:
        raise RubricError(f"{where}: no criterion")
    points, of = (_number(where, name, cells.get(name, "")) for name in ("points", "of"))
    if points > of:
        raise RubricError(f"{where}: {points:g} points of {of:g}")
    return Given(student, criterion, points, of, unit, cells.get("note", ""))


def _number(where: str, name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e6:
        raise RubricError(f"{where}: {name} is {text or 'empty'}, not a number of 0 or more")
    return value


def _agree(path: Path, given: Iterable[Given]) -> None:
    """Raise RubricError if a criterion has different maximum points."""
    of: dict[tuple[str, str], float] = {}
    for one in given:
        if of.setdefault((one.unit, one.criterion), one.of) != one.of:
            both = f"of {of[one.unit, one.criterion]:g} and of {one.of:g}"
            raise RubricError(f"{path}: {one.criterion} is {both}; it has one maximum")


def merged(path: Path, old: Iterable[Given], new: Iterable[Given]) -> list[Given]:
    """Merge lines; `new` replaces `old` ones with the same key. Raises RubricError if maxima differ."""
    lines = {one.key: one for one in (*old, *new)}
    together = [lines[key] for key in sorted(lines)]
    _agree(path, together)
    return together


def write(path: Path, given: Iterable[Given]) -> None:
    """Write a rubric file that `read` accepts."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(COLUMNS + OPTIONAL)
    rows.writerows((o.student, o.criterion, repr(o.points), repr(o.of), o.unit, o.note) for o in given)
    path.parent.mkdir(parents=True, exist_ok=True)
    replace(path, text.getvalue())
