"""The roster: a CSV with a line a student, as Canvas, Moodle or a person writes it."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass, field
from pathlib import Path

from grader.batch.names import plain, safe_id
from grader.files import read_bytes

MOST_BYTES = 8 << 20
# The first of these columns that is there gives the ids; compared without case and punctuation.
ID_COLUMNS = ("sisloginid", "id", "studentid", "login", "username", "idnumber", "emailaddress", "email")
# Whatever stands in these columns names its student, too.
NAME_COLUMNS = (
    *ID_COLUMNS, "canvasid", "sisuserid", "identifier", "student", "name", "fullname", "github", "submission",
)  # fmt: skip
NOT_STUDENTS = ("points possible",)  # the first cell of a line that Canvas puts among them


class RosterError(Exception):
    """The roster cannot be used, with its line."""


@dataclass(frozen=True)
class Roster:
    """Students by id, each with the line of the roster; and who is meant by a name."""

    students: dict[str, dict[str, str]] = field(default_factory=dict)
    _index: dict[str, str] = field(default_factory=dict)

    def find(self, keys: tuple[str, ...]) -> str | None:
        """The id of the one student whom one of these names, the best first; None where nobody or several."""
        return next((self._index[plain(key)] for key in keys if self._index.get(plain(key))), None)


def read(path: Path) -> Roster:
    """The roster of a file; RosterError where there is no column of ids, or one id twice."""
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
            raise RosterError(f"{where}: {cells[position]} stands in line {lines[name]} already")
        lines[name] = rows.line_num
        students[name] = {c: v for c, v in zip(columns, cells, strict=False) if c}
    if not students:
        raise RosterError(f"{path}: no student in it")
    return Roster(students, _index_of(students))


def _delimiter(text: str) -> str:
    first = text.partition("\n")[0]
    return max(",;\t", key=first.count)


def _id_column(path: Path, columns: list[str]) -> int:
    known = [plain(column) for column in columns]
    for wanted in ID_COLUMNS:
        if wanted in known:
            return known.index(wanted)
    found = ", ".join(filter(None, columns)) or "none"
    raise RosterError(f"{path}:1: no column with ids, such as id or email; its columns are {found}")


def _index_of(students: dict[str, dict[str, str]]) -> dict[str, str]:
    """Who is meant by each word; a word that two share means nobody ("")."""
    index: dict[str, str] = {}
    for student, line in students.items():
        for word in {plain(word) for word in _words(student, line)} - {""}:
            index[word] = student if index.get(word, student) == student else ""
    index.update({plain(student): student for student in students})  # an id means its own student
    return index


def _words(student: str, line: dict[str, str]):
    by_column = {plain(column): value for column, value in line.items()}
    yield student
    for column, value in by_column.items():
        if column not in NAME_COLUMNS:
            continue
        yield value
        yield value.removeprefix("Participant ")  # Moodle's identifier; its downloads have the number alone
        last, comma, first = value.partition(",")
        if comma:
            yield f"{first} {last}"
    first, last = by_column.get("firstname"), by_column.get("surname", by_column.get("lastname"))
    if first and last:
        yield f"{first} {last}"
        yield f"{last} {first}"
