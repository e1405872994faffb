"""The roster: a CSV with one row per student, exported from a platform or written by hand.

The shapes of exports follow the platforms' own code: Canvas, lib/gradebook_exporter.rb; Moodle,
grade/export/txt and mod/assign/gradingtable.php; GitHub Classroom's classroom_roster.csv.
"""

from __future__ import annotations

import codecs
import csv
import io
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from grader.classroom.intake.identity import Index, Match, Names
from grader.classroom.intake.student_ids import Key, Kind, plain, safe_id
from grader.system.files import read_bytes

MOST_BYTES = 8 << 20
# The first of these columns that exists holds the ids; names are compared without case and punctuation.
ID_COLUMNS = (
    "sisloginid", "id", "studentid", "login", "username", "idnumber", "emailaddress", "email", "identifier",
    "githubusername",
)  # fmt: skip
EMAIL_COLUMNS = ("emailaddress", "email")
# Where the id is empty, the first of these that is not stands for it: Moodle's ID number is often empty.
INSTEAD = (*EMAIL_COLUMNS, "username", "githubusername")
ACCOUNT_COLUMNS = (*ID_COLUMNS, "sisuserid", "integrationid", "github", "githubid", "submission")
USER_COLUMNS = ("canvasid",)  # and Canvas's ID, in an export of Canvas
NUMBER_COLUMNS = ("identifier",)  # Moodle's "Participant 12345"; its downloads have only the number
GROUP_COLUMNS = ("group", "groupname", "team")
FULL_NAME_COLUMNS = ("student", "name", "fullname", "sortablename")
GITHUB_COLUMNS = ("githubusername", "github")
CANVAS = {
    "id",
    "sisloginid",
    "section",
}  # with a name: an export of Canvas's gradebook
CANVAS_NAMES = ({"student"}, {"lastname", "firstname"})
POINTS_POSSIBLE = "points possible"  # first cell of a row of Canvas that is not a student
TEST_STUDENT = ("student,test", "test,student")  # Canvas's student view, which has no SIS user id


class RosterError(Exception):
    """The roster cannot be used; the message names file and line."""


@dataclass(frozen=True)
class Roster:
    """Students by id, each with the row of the roster, and the index of what identifies them."""

    students: dict[str, dict[str, str]] = field(default_factory=dict)
    index: Index = field(default_factory=Index)
    github: dict[str, frozenset[str]] = field(default_factory=dict)  # students by account in lower case

    def match(self, keys: tuple[Key, ...]) -> Match:
        """Return the student whom all keys mean, or the students that they could mean."""
        return self.index.match(keys)


def read(path: Path) -> Roster:
    """Read a roster. Raises RosterError if it has no id column, no student, or the same id twice."""
    text = _text(path)
    try:
        return _read(path, csv.reader(io.StringIO(text), delimiter=delimiter(text)))
    except csv.Error as error:
        raise RosterError(f"{path}: cannot be read as CSV: {error}") from None


def _read(path: Path, rows) -> Roster:
    columns = [cell.strip() for cell in next(rows, [])]
    id_column = _id_column(path, columns)
    students: dict[str, dict[str, str]] = {}
    names: list[Names] = []
    lines: dict[str, int] = {}
    for row in rows:
        cells = [cell.strip() for cell in row]
        line = {c: v for c, v in zip(columns, cells, strict=False) if c}
        if not any(cells) or _is_no_student(line):
            continue
        where = f"{path}:{rows.line_num}"
        own = line.get(id_column) or _cell(line, *INSTEAD)
        if not own:
            raise RosterError(f"{where}: no {id_column} in this line")
        if own in lines:
            raise RosterError(f"{where}: {own} is in line {lines[own]} already")
        if safe_id(own) in students:
            raise RosterError(f"{where}: {own} and another id would have one folder, {safe_id(own)}")
        if any(cells[len(columns) :]):
            raise RosterError(f"{where}: {len(cells)} cells for {len(columns)} columns; a comma needs quotes")
        lines[own] = rows.line_num
        students[safe_id(own)] = line
        names.append(_names(safe_id(own), own, line))
    if not students:
        raise RosterError(f"{path}: no student in this file")
    return Roster(students, Index(names), _accounts(students))


def own_id(line: dict[str, str]) -> str:
    """Return the id of a row as the roster spells it, or an empty string."""
    columns = {plain(column) for column in line}
    first = next((column for column in ID_COLUMNS if column in columns), "")
    return _cell(line, first) or _cell(line, *INSTEAD)


def is_canvas(line: dict[str, str]) -> bool:
    """Whether the row is from an export of Canvas's gradebook, whose ID column is Canvas's own number."""
    columns = {plain(column) for column in line}
    return columns >= CANVAS and any(columns >= names for names in CANVAS_NAMES)


def _text(path: Path) -> str:
    """Return the text of a CSV in UTF-8, in UTF-16 with its mark, or as old spreadsheets write it."""
    try:
        data = read_bytes(path, MOST_BYTES)
        if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            return data.decode("utf-16")
        try:
            return data.decode("utf-8-sig")
        except ValueError:
            return data.decode("cp1252")
    except (OSError, ValueError) as error:
        raise RosterError(f"{path}: cannot be read as text: {error}") from None


def delimiter(text: str) -> str:
    """Return the character that separates the cells of a CSV."""
    first = text.partition("\n")[0]
    return max(",;\t", key=first.count)


def _id_column(path: Path, columns: list[str]) -> str:
    known = {plain(column): column for column in reversed(columns)}
    for column in ID_COLUMNS:
        if column in known:
            return known[column]
    found = ", ".join(filter(None, columns)) or "none"
    raise RosterError(f"{path}:1: no column with ids, such as id or email; its columns are {found}")


def _cell(line: dict[str, str], *columns: str) -> str:
    by_column = {plain(column): value for column, value in line.items()}
    return next((by_column[column] for column in columns if by_column.get(column)), "")


def _accounts(students: Mapping[str, dict[str, str]]) -> dict[str, frozenset[str]]:
    """Return the students of each GitHub account, in lower case; two lines may name one account."""
    found: dict[str, frozenset[str]] = {}
    for student, line in students.items():
        account = _cell(line, *GITHUB_COLUMNS).lower()
        if account:
            found[account] = found.get(account, frozenset()) | {student}
    return found


def _is_no_student(line: dict[str, str]) -> bool:
    """Whether a row of Canvas's export has maximum points, muted columns, or the Test Student."""
    if next(iter(line.values()), "").casefold() == POINTS_POSSIBLE:
        return True
    if not is_canvas(line):
        return False
    name = _cell(line, "student") or ",".join((_cell(line, "lastname"), _cell(line, "firstname")))
    if not name.strip(",") and not _cell(line, "id"):
        return True  # "Muted" or "Manual Posting" below the columns of assignments, and nothing else
    return _without_blanks(name) in TEST_STUDENT and not _cell(line, "sisuserid")


def _without_blanks(name: str) -> str:
    """Return a name in lower case, without blanks."""
    return "".join(name.lower().split())


def _names(student: str, own: str, line: dict[str, str]) -> Names:
    """Return all texts of a row that identify its student, by kind."""
    by_column = {plain(column): value for column, value in line.items() if value}
    found: dict[Kind, set[str]] = {kind: set() for kind in Kind}
    found[Kind.ID].add(own)
    users = (*USER_COLUMNS, *(("id",) if is_canvas(line) else ()))
    for column, value in by_column.items():
        if column in users:
            found[Kind.USER].add(value)
        if column in NUMBER_COLUMNS and value.startswith("Participant "):
            found[Kind.NUMBER].add(value.removeprefix("Participant "))
        elif column in ACCOUNT_COLUMNS and column not in users:
            found[Kind.EMAIL if "@" in value else Kind.ACCOUNT].add(value)
        if column in GROUP_COLUMNS:
            found[Kind.GROUP].add(value)
        if column in FULL_NAME_COLUMNS:
            last, comma, first = value.partition(",")
            found[Kind.NAME] |= {value, f"{first.strip()} {last}"} if comma else {value}
    first, last = by_column.get("firstname"), by_column.get("surname", by_column.get("lastname"))
    if first and last:
        found[Kind.NAME] |= {f"{first} {last}", f"{last} {first}"}
    return Names(student, {kind: frozenset(texts) for kind, texts in found.items()})
