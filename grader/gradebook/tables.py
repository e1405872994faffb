"""The grades as CSV: for a person, for Canvas, for Moodle; each as its reader takes it, and safe to open."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from grader.batch.models import Unit
from grader.batch.names import plain
from grader.gradebook.book import Book, Cell, Row
from grader.gradebook.people import MOODLE, cell, is_canvas

# What a spreadsheet takes for a formula. An apostrophe before it shows the text; numbers are never text.
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
SAFE_KEY = re.compile(
    r"[A-Za-z0-9_][A-Za-z0-9_.@+ -]*"
)  # of an account; changed by a single sign it is nobody's
CANVAS_COLUMN = re.compile(r"(?P<title>.+) \((?P<id>\d+)\)")
MOODLE_MOST = 100.0  # Moodle refuses a file with a larger grade, unless its administrators allow them


@dataclass(frozen=True)
class Table:
    """A CSV, and what a person should know of it."""

    text: str
    warnings: tuple[str, ...] = ()


def safe(text: str) -> str:
    """Text of one line that no spreadsheet takes for a formula."""
    line = " ".join(text.split())
    return f"'{line}" if line.startswith(FORMULA) else line


def number(value: float) -> str:
    """Points with two digits, as gradebooks keep them; never -0."""
    return f"{round(value, 2) + 0.0:.2f}"


def grades(book: Book) -> Table:
    """Everything, a row a student: for a person, and for whoever wants to reckon on."""
    units = book.run.units
    columns = ["student", "name", "on roster", "handed in", "time from"]
    for unit in units:
        names = (
            "state",
            "points",
            "prose",
            "raw",
            "days late",
            "tokens",
            "late cost %",
            "final",
            "not graded",
            "of",
        )
        columns += [f"{unit.title}: {name}" for name in names]
        columns += [f"{unit.title}: {name} (of {most:g})" for name, most in unit.exercises.items()]
    columns += ["raw", "final", "not graded", "of", "tokens left", "open", "notes", "needs a look"]
    return Table(_text([columns, *(_row(row) for row in book.rows)]))


def _row(row: Row) -> list[str]:
    intake = row.intake
    cells = [safe(row.id), safe(row.name), "yes" if row.on_roster else "no"]
    cells += [safe(intake.handed_in or ""), safe(intake.handed_in_by)] if intake else ["", ""]
    for one in row.cells:
        cells += _unit(one)
    cells += [number(row.total(name)) for name in ("raw", "final", "not_graded", "most")]
    still_open = [one.unit.title for one in row.cells if one.is_open]
    notes = [f"{one.unit.title}: {note}" for one in row.cells for note in one.notes]
    lists = (still_open, notes, row.needs_a_look)
    return [*cells, str(row.tokens_left), *(safe("; ".join(words)) for words in lists)]


def _unit(one: Cell) -> list[str]:
    points = {exercise.name: number(exercise.points) for exercise in one.exercises}
    of_exercises = [points.get(name, "") for name in one.unit.exercises]
    prose = number(sum(given.points for given in one.given)) if one.given else ""
    if one.is_open:
        return [
            one.state,
            "",
            prose,
            "",
            "",
            "",
            "",
            "",
            number(one.not_graded),
            number(one.most),
            *of_exercises,
        ]
    late = one.late
    cost = [str(late.days), str(late.tokens), number(100 * float(late.lost))]
    ends = [number(one.final), number(one.not_graded), number(one.most)]
    return [one.state, number(one.points), prose, number(one.raw), *cost, *ends, *of_exercises]


def canvas(book: Book) -> Table:
    """What Canvas's gradebook imports: students by Canvas's id, SIS ids or name; a column a lab.

    Where the roster is an export of the gradebook, the columns are the export's own, with Canvas's ids.
    """
    rows = [row for row in book.rows if row.on_roster]
    export = next((list(row.roster) for row in rows if is_canvas(row.roster)), [])
    titles = [canvas_column(unit, export) for unit in book.run.units]
    most = _most(book)
    header = ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", *titles]
    possible = ["    Points Possible", "", "", "", "", *(number(most[unit.name]) for unit in book.run.units)]
    lines, strange = [], []
    for row in rows:
        keys = _canvas_keys(row)
        strange += [row.id for key in keys if key and not SAFE_KEY.fullmatch(key)][:1]
        points = ["" if one.is_open else number(one.final) for one in row.cells]
        lines.append([safe(row.name), *map(safe, keys), safe(cell(row.roster, "section")), *points])
    return Table(_text([header, possible, *lines]), _warnings(book, "canvas.csv", strange, []))


def canvas_column(unit: Unit, export: Sequence[str]) -> str:
    """The column of a lab: the one of Canvas's export of that name, else a title that Canvas asks about."""
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
    """What a lab is called in a gradebook that does not know it."""
    return f"Lab {unit.lab}: {unit.title}" if unit.lab.isdigit() else unit.title.capitalize()


def _canvas_keys(row: Row) -> list[str]:
    """ID, SIS User ID, SIS Login ID; a number that is not Canvas's own must not stand in its column."""
    if is_canvas(row.roster):
        return [cell(row.roster, name) for name in ("id", "sisuserid", "sisloginid")]
    return [
        "",
        cell(row.roster, "sisuserid", "studentid"),
        cell(row.roster, "sisloginid", "login", "username") or row.id,
    ]


def moodle(book: Book) -> Table:
    """What Moodle's grade import takes: a column that names the user, and one a lab.

    A lab of more than 100 points is written as a percentage: Moodle refuses a file with a larger grade. It
    refuses the whole file for one user whom it does not know, too: only students of the roster are in it.
    """
    rows = [row for row in book.rows if row.on_roster]
    key = next((key for key in MOODLE if any(cell(row.roster, key) for row in rows)), "")
    most = _most(book)
    percent = {unit.name: most[unit.name] > MOODLE_MOST for unit in book.run.units}
    header = [MOODLE[key] if key else "Username"]
    header += [title_of(unit) + (" (percent)" if percent[unit.name] else "") for unit in book.run.units]
    lines, strange, missing = [], [], []
    for row in rows:
        name = cell(row.roster, key) if key else row.id
        if not name:
            missing.append(row.id)
            continue
        if not SAFE_KEY.fullmatch(name):
            strange.append(row.id)
        points = [_moodle_points(one, percent[one.unit.name], most[one.unit.name]) for one in row.cells]
        lines.append([safe(name), *points])
    return Table(_text([header, *lines]), _warnings(book, "moodle.csv", strange, missing))


def _moodle_points(one: Cell, percent: bool, most: float) -> str:
    if one.is_open:
        return "-"  # Moodle's sign for no grade
    return number(100 * one.final / most if percent else one.final)


def _most(book: Book) -> dict[str, float]:
    """Points that there are for each lab, those of the rubric counted in."""
    most = {unit.name: unit.max_points for unit in book.run.units}
    for row in book.rows:
        for one in row.cells:
            most[one.unit.name] = max(most[one.unit.name], one.unit.max_points + sum(g.of for g in one.given))
    return most


def _warnings(book: Book, file: str, strange: Sequence[str], missing: Sequence[str]) -> tuple[str, ...]:
    found = []
    left = sum(row.total("not_graded") > 0 for row in book.rows)
    if left:
        found.append(f"{file}: {left} students have points that were not graded; they count as none in it")
    unknown = [row.id for row in book.rows if not row.on_roster]
    for names, words in (
        (unknown, "not on the roster, so not in it"),
        (missing, "no email, username or ID number in the roster, so not in it"),
        (strange, "an account's name that a spreadsheet could take for a formula; it was escaped, check it"),
    ):
        if names:
            more = f" and {len(names) - 5} more" if len(names) > 5 else ""
            found.append(f"{file}: {', '.join(names[:5])}{more}: {words}")
    return tuple(found)


def _text(rows: Iterable[Sequence[str]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\r\n").writerows(rows)
    return text.getvalue()
