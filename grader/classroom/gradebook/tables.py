"""The grades as CSV, for people and further processing; safe to open in a spreadsheet."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from grader.classroom.gradebook.book import Book, Cell, Row
from grader.results.points import text

# First characters of a formula in a spreadsheet. A leading apostrophe makes the cell text.
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")


@dataclass(frozen=True)
class Table:
    """A CSV file as text, and warnings about it."""

    text: str
    warnings: tuple[str, ...] = ()


def safe(text: str) -> str:
    """Return the text on one line, escaped so that no spreadsheet reads it as a formula."""
    line = " ".join(text.split())
    return f"'{line}" if line.startswith(FORMULA) else line


def grades(book: Book) -> Table:
    """Return grades.csv: one row per student with everything that is known."""
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
    columns += [
        "raw",
        "final",
        "not graded",
        "of",
        "tokens left",
        "open",
        "partly graded",
        "notes",
        "needs a look",
    ]
    return Table(as_csv([columns, *(_row(row) for row in book.rows)]))


def _row(row: Row) -> list[str]:
    intake = row.intake
    cells = [safe(row.id), safe(row.name), "yes" if row.on_roster else "no"]
    cells += [safe(intake.handed_in or ""), safe(intake.handed_in_by)] if intake else ["", ""]
    for one in row.cells:
        cells += _unit(one)
    cells += [text(row.total(name)) for name in ("raw", "final", "not_graded", "most")]
    still_open = [one.unit.title for one in row.cells if one.is_open]
    notes = [f"{one.unit.title}: {note}" for one in row.cells for note in one.notes]
    partly = [words for one in row.cells if (words := one.partly)]
    lists = (still_open, partly, notes, row.needs_a_look)
    return [*cells, str(row.tokens_left), *(safe("; ".join(words)) for words in lists)]


def _unit(one: Cell) -> list[str]:
    points = {exercise.name: text(exercise.points) for exercise in one.exercises}
    of_exercises = [points.get(name, "") for name in one.unit.exercises]
    prose = text(one.prose) if one.given else ""
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
            text(one.not_graded),
            text(one.most),
            *of_exercises,
        ]
    late = one.late
    cost = [str(late.days), str(late.tokens), text(100 * float(late.lost))]
    ends = [text(one.final), text(one.not_graded), text(one.most)]
    return [one.state, text(one.points), prose, text(one.raw), *cost, *ends, *of_exercises]


def as_csv(rows: Iterable[Sequence[str]]) -> str:
    """Return the rows as CSV text with CRLF line ends."""
    file = io.StringIO()
    csv.writer(file, lineterminator="\r\n").writerows(rows)
    return file.getvalue()
