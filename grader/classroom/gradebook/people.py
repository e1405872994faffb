"""Names and ids of a student from a row of the roster, for all platforms' column names."""

from __future__ import annotations

from collections.abc import Mapping

from grader.classroom.intake.student_ids import plain

NAMES = ("student", "name", "fullname", "sortablename")
NICKNAMES = ("nickname", "alias", "leaderboard")
# Titles of the user field in Moodle's import, by roster column; best first.
MOODLE = {
    "emailaddress": "Email address",
    "email": "Email address",
    "username": "Username",
    "idnumber": "ID number",
}


def cell(line: Mapping[str, str], *columns: str) -> str:
    """Return the first non-empty value of these columns, compared without case and punctuation."""
    by_column = {plain(column): value for column, value in line.items()}
    return next((by_column[column] for column in columns if by_column.get(column)), "")


def name_of(student: str, line: Mapping[str, str]) -> str:
    """Return the student's name from the roster, else the id."""
    first, last = cell(line, "firstname"), cell(line, "surname", "lastname")
    return cell(line, *NAMES) or " ".join(filter(None, (first, last))) or student
