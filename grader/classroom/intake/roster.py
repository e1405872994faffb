"""The roster: a CSV with one row per student, exported from Canvas or Moodle or written by hand."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from grader.classroom.intake.student_ids import caseless, plain, safe_id
from grader.system.files import read_bytes

MOST_BYTES = 8 << 20
# The first of these columns that exists holds the ids; names are compared without case and punctuation.
ID_COLUMNS = ("sisloginid", "id", "studentid", "login", "username", "idnumber", "emailaddress", "email")
# The values of these columns identify the student, too.
NAME_COLUMNS = (
    *ID_COLUMNS, "canvasid", "sisuserid", "identifier", "student", "name", "fullname", "github", "submission",
)  # fmt: skip
NOT_STUDENTS = ("points possible",)  # first cell of a Canvas row that is not a student


class RosterError(Exception):
    """The roster cannot be used; the message names file and line."""


@dataclass(frozen=True)
class Roster:
    """Students by id, each with the row of the roster, and lookup by other names."""

    students: dict[str, dict[str, str]] = field(default_factory=dict)
    _close: dict[str, str] = field(default_factory=dict)  # student by name without case
    _loose: dict[str, str] = field(default_factory=dict)  # student by name without case and punctuation

    def find(self, keys: tuple[str, ...]) -> str | None:
        """Return the id of the student named by one of `keys`, best first; None for no or several students.

        An exact id wins, then a match without case, then a match without punctuation.
        """
        for key in keys:
            student = safe_id(key)
            student = student if student in self.students else self._close.get(caseless(key))
            if student:
                return student
        return next((self._loose[plain(key)] for key in keys if self._loose.get(plain(key))), None)


def read(path: Path) -> Roster:
    """Read a roster. Raises RosterError if it has no id column, no student, or the same id twice."""
    try:
        text = read_bytes(path, MOST_BYTES).decode("utf-8-sig")
    except (OSError, ValueError) as error:
        raise RosterError(f"{path}: cannot be read as UTF-8 text: {error}") from None
    rows = csv.reader(io.StringIO(text), delimiter=_delimiter(text))
    columns = [cell.strip() for cell in next(rows, [])]
    position = _id_column(path, columns)
    students: dict[str, dict[str, str]] = {}
    lines: dict[str, int] = {}
    for row in rows:
        cells = [cell.strip() for cell in row]
        if not any(cells) or cells[0].casefold() in NOT_STUDENTS:
            continue
        if len(cells) <= position or not cells[position]:
            raise RosterError(f"{path}:{rows.line_num}: no {columns[position]} in this line")
        name = safe_id(cells[position])
        if name in students:
            where = f"{path}:{rows.line_num}"
            raise RosterError(f"{where}: {cells[position]} is in line {lines[name]} already")
        lines[name] = rows.line_num
        students[name] = {c: v for c, v in zip(columns, cells, strict=False) if c}
    if not students:
        raise RosterError(f"{path}: no student in this file")
    return Roster(students, _index_of(students, caseless), _index_of(students, plain))


def _delimiter(text: str) -> str:
    first = text.partition("\n")[0]
    return max(",;\t", key=first.count)


def _id_column(path: Path, columns: list[str]) -> int:
    known = [plain(column) for column in columns]
    for column in ID_COLUMNS:
        if column in known:
            return known.index(column)
    found = ", ".join(filter(None, columns)) or "none"
    raise RosterError(f"{path}:1: no column with ids, such as id or email; its columns are {found}")


def _index_of(students: dict[str, dict[str, str]], spelled: Callable[[str], str]) -> dict[str, str]:
    """Map each name, ids included, to its student, or to "" if two students share the name."""
    index: dict[str, str] = {}
    for student, line in students.items():
        for word in {spelled(word) for word in _words(student, line)} - {""}:
            index[word] = student if index.get(word, student) == student else ""
    return index


def _words(student: str, line: dict[str, str]):
    by_column = {plain(column): value for column, value in line.items()}
    yield student
    for column, value in by_column.items():
        if column not in NAME_COLUMNS:
            continue
        yield value
        yield value.removeprefix("Participant ")  # Moodle's identifier; its downloads have only the number
        last, comma, first = value.partition(",")
        if comma:
            yield f"{first} {last}"
    first, last = by_column.get("firstname"), by_column.get("surname", by_column.get("lastname"))
    if first and last:
        yield f"{first} {last}"
        yield f"{last} {first}"
