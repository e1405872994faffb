"""The grades as CSV, for a person and for whoever wants to reckon on; safe to open in a spreadsheet."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from grader.gradebook.book import Book, Cell, Row

# What a spreadsheet takes for a formula. An apostrophe before it shows the text; numbers are never text.
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")


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
    return Table(as_csv([columns, *(_row(row) for row in book.rows)]))


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


def as_csv(rows: Iterable[Sequence[str]]) -> str:
    """The rows as text, quoted where they must be."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\r\n").writerows(rows)
    return text.getvalue()
