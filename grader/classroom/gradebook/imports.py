"""Write the grades as CSV files for import into Canvas and Moodle."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence

from grader.classroom.gradebook.book import EXCUSED, Book, Cell, Row
from grader.classroom.gradebook.people import MOODLE, cell
from grader.classroom.gradebook.tables import Table, as_csv, safe
from grader.classroom.intake.roster import is_canvas, own_id
from grader.classroom.intake.student_ids import plain
from grader.classroom.records import Unit
from grader.results.points import text

SAFE_KEY = re.compile(
    r"[A-Za-z0-9_][A-Za-z0-9_.@+ -]*"
)  # of an account; one changed character would make it unknown
CANVAS_COLUMN = re.compile(r"(?P<title>.+) \((?P<id>\d+)\)")
MOODLE_MOST = 100.0  # Moodle refuses a file with a larger grade, unless its administrators allow it


def canvas(book: Book) -> Table:
    """Return the CSV for Canvas: students by Canvas id, SIS ids or name, and one column per lab.

    If the roster is an export of the Canvas gradebook, its columns and ids are used.
    """
    rows, twice = _distinct([row for row in book.rows if row.on_roster], _canvas_keys)
    export = next((list(row.roster) for row in rows if is_canvas(row.roster)), [])
    titles = [canvas_column(unit, export) for unit in book.run.units]
    most = _most(book)
    header = ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", *titles]
    possible = ["    Points Possible", "", "", "", "", *(text(most[unit.name]) for unit in book.run.units)]
    lines, strange = [], []
    for row in rows:
        keys = _canvas_keys(row)
        strange += [row.id for key in keys if key and not SAFE_KEY.fullmatch(key)][:1]
        points = [_canvas_points(one, row, title) for one, title in zip(row.cells, titles, strict=True)]
        lines.append([safe(row.name), *map(safe, keys), safe(cell(row.roster, "section")), *points])
    return Table(as_csv([header, possible, *lines]), _warnings(book, "canvas.csv", strange, [], twice))


def _canvas_points(one: Cell, row: Row, title: str) -> str:
    """Return a grade; for an open lab the one that Canvas has, because an empty cell would delete it."""
    if one.state == EXCUSED:
        return "EX"
    return row.roster.get(title, "") if one.is_open else text(one.final)


def canvas_column(unit: Unit, export: Sequence[str]) -> str:
    """Return a lab's column in Canvas's export, else a new title, which Canvas asks about on import."""
    known = {
        plain(unit.title),
        plain(unit.name),
        plain(f"lab {unit.lab}"),
        plain(f"lab {unit.lab} {unit.title}"),
    }
    for column in export:
        match = CANVAS_COLUMN.fullmatch(column)
        if match and plain(match["title"]) in known:
            return column
    return safe(title_of(unit))


def title_of(unit: Unit) -> str:
    """Return the title of a lab in a gradebook that has no column for it."""
    return f"Lab {unit.lab}: {unit.title}" if unit.lab.isdigit() else unit.title.capitalize()


def _canvas_keys(row: Row) -> list[str]:
    """Return ID, SIS User ID and SIS Login ID; only Canvas's own number may be the ID."""
    if is_canvas(row.roster):
        return [cell(row.roster, name) for name in ("id", "sisuserid", "sisloginid")]
    return [
        "",
        cell(row.roster, "sisuserid", "studentid"),
        cell(row.roster, "sisloginid", "login", "username") or own_id(row.roster) or row.id,
    ]


def moodle(book: Book) -> Table:
    """Return the CSV for Moodle: one column that identifies the user, and one column per lab.

    Moodle refuses a file with a grade above 100, so a lab with more points is written as a percentage. It
    also refuses a file with an unknown user, so only students of the roster are included.
    """
    listed = [row for row in book.rows if row.on_roster]
    key = next((key for key in MOODLE if any(cell(row.roster, key) for row in listed)), "")
    rows, twice = _distinct(listed, lambda row: [cell(row.roster, key) if key else row.id])
    most = _most(book)
    percent = {unit.name: most[unit.name] > MOODLE_MOST for unit in book.run.units}
    header = [MOODLE[key] if key else "Username"]
    header += [title_of(unit) + (" (percent)" if percent[unit.name] else "") for unit in book.run.units]
    lines, strange, missing = [], [], []
    for row in rows:
        name = cell(row.roster, key) if key else own_id(row.roster) or row.id
        if not name:
            missing.append(row.id)
            continue
        if not SAFE_KEY.fullmatch(name):
            strange.append(row.id)
        points = [_moodle_points(one, percent[one.unit.name], most[one.unit.name]) for one in row.cells]
        lines.append([safe(name), *points])
    return Table(as_csv([header, *lines]), _warnings(book, "moodle.csv", strange, missing, twice))


def _moodle_points(one: Cell, percent: bool, most: float) -> str:
    if not one.in_total:
        return "-"  # Moodle reads this as no grade
    return text(100 * one.final / most if percent else one.final)


def _most(book: Book) -> dict[str, float]:
    """Return the maximum points of each lab, including the rubric."""
    most = {unit.name: unit.max_points for unit in book.run.units}
    for row in book.rows:
        for one in row.cells:
            most[one.unit.name] = max(most[one.unit.name], one.unit.max_points + sum(g.of for g in one.given))
    return most


def _distinct(rows: Sequence[Row], keys: Callable[[Row], list[str]]) -> tuple[list[Row], list[str]]:
    """Return the rows whose keys are nobody else's, and the ids of the others: they would get one grade."""
    count = Counter(key for row in rows for key in {(k, text) for k, text in enumerate(keys(row)) if text})
    own = [row for row in rows if all(count[k, text] == 1 for k, text in enumerate(keys(row)) if text)]
    return own, [row.id for row in rows if row not in own]


def _warnings(
    book: Book, file: str, strange: Sequence[str], missing: Sequence[str], twice: Sequence[str]
) -> tuple[str, ...]:
    found = []
    left = sum(row.total("not_graded") > 0 for row in book.rows)
    if left:
        found.append(f"{file}: {left} students have points that were not graded; they count as 0 there")
    unknown = [row.id for row in book.rows if not row.on_roster]
    if len(unknown) == len(book.rows):
        return (*found, f"{file}: it is empty, because no student is on a roster; make gradebook ROSTER=csv")
    for names, words in (
        (unknown, "not on the roster, so left out"),
        (missing, "no email, username or ID number in the roster, so left out"),
        (twice, "the same account or e-mail address as somebody else, so left out"),
        (strange, "a spreadsheet could take this account name for a formula; it was escaped, check it"),
    ):
        if names:
            more = f" and {len(names) - 5} more" if len(names) > 5 else ""
            found.append(f"{file}: {', '.join(names[:5])}{more}: {words}")
    return tuple(found)
