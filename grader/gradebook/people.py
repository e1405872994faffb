"""What a roster's line says of a student: names and ids, whatever platform wrote it."""

from __future__ import annotations

from collections.abc import Mapping

from grader.batch.names import plain

NAMES = ("student", "name", "fullname", "sortablename")
NICKNAMES = ("nickname", "alias", "leaderboard")
CANVAS = ("student", "id", "section")  # a roster with these columns is an export of Canvas's gradebook
# Moodle's importer is told which of a user's fields a column is; best first.
MOODLE = {
    "emailaddress": "Email address",
    "email": "Email address",
    "username": "Username",
    "idnumber": "ID number",
}


def cell(line: Mapping[str, str], *columns: str) -> str:
    """The first of these columns that has something in it; compared without case and punctuation."""
    by_column = {plain(column): value for column, value in line.items()}
    return next((by_column[column] for column in columns if by_column.get(column)), "")


def name_of(student: str, line: Mapping[str, str]) -> str:
    """Whom a person would look for: the roster's name, or the id."""
    first, last = cell(line, "firstname"), cell(line, "surname", "lastname")
    return cell(line, *NAMES) or " ".join(filter(None, (first, last))) or student


def is_canvas(line: Mapping[str, str]) -> bool:
    """Whether the line is of an export of Canvas's gradebook, whose ID is Canvas's own number."""
    return {plain(column) for column in line}.issuperset(CANVAS)
