"""HTML pages of a class: the class page, one page per student and lab, and a leaderboard."""

from __future__ import annotations

import zoneinfo
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from grader.classroom.gradebook import leaderboard, people, plots, view
from grader.classroom.gradebook.book import Book, Cell, Row
from grader.classroom.records import State
from grader.course.tiers import AUTO
from grader.grading.options import RunOptions, command_of
from grader.report.page.render import environment, render
from grader.results import reading
from grader.results.models import Results
from grader.results.points import text
from grader.system.files import replace

SOURCE = "what you handed in"  # instead of a path on the grading machine
STAMP = "<!-- {} -->\n"  # hashes of a page's inputs; a page with the same stamp is not written again


@dataclass(frozen=True)
class ListedRow:
    """A row of the table of students, and the number of its section, 0 for none."""

    row: Row
    section: int


def class_page(book: Book, warnings: tuple[str, ...]) -> str:
    """Return the class page, for course staff."""
    return _template("class.html").render(
        book=book,
        run=book.run,
        looks=sum(bool(row.needs_a_look) for row in book.rows),
        alarms=(*_alarms(book), *warnings),
        spreads=view.spreads(book),
        exercises=view.exercises(book),
        shapes=view.shapes(book),
        spread_plot=plots.spread_plot,
        shape_plot=plots.shape_plot,
        selftest=book.selftest,
        drift=book.drift,
        sections=sections(book),
        orders=orders(book),
        causes=view.causes_by_unit(book),
        links={row.id: f"students/{quote(row.id)}/index.html" for row in book.rows},
    )


def sections(book: Book) -> dict[str, int]:
    """Return the sections of the roster, each with a number; {} if there are fewer than two."""
    found = sorted({people.cell(row.roster, "section") for row in book.rows} - {""})
    return {name: number for number, name in enumerate(found, 1)} if len(found) > 1 else {}


def orders(book: Book) -> dict[str, list[ListedRow]]:
    """Return the rows of the table of students, sorted in each way that the page offers."""
    numbers = sections(book)
    listed = [ListedRow(row, numbers.get(people.cell(row.roster, "section"), 0)) for row in book.rows]
    by_name = sorted(listed, key=lambda one: (one.row.name.casefold(), one.row.id))
    return {
        "name": by_name,
        "least points": sorted(by_name, key=lambda one: one.row.total("final")),
        "to review": sorted(by_name, key=lambda one: not one.row.needs_a_look),
    }


def _alarms(book: Book) -> list[str]:
    """Return warnings about the run as a whole."""
    found = []
    if book.selftest and not book.selftest.held:
        found.append(
            "The self-test failed: the machine or the grader is at fault. Do not publish these grades."
        )
    changed = sum(len(one.verdicts_changed) for one in book.drift.exercises) if book.drift else 0
    if changed:
        found.append(f"{changed} verdicts changed in a second, blind grading.")
    models = sorted({machine.gpu.name for machine in book.run.machines if machine.gpu})
    if len(models) > 1:
        found.append(f"Graded on {' and '.join(models)}: percentages of two models do not compare.")
    states = [cell.state for row in book.rows for cell in row.cells if cell.is_open]
    unclear = states.count(State.NOT_COLLECTED.value)
    if unclear:
        found.append(f"{unclear} labs of students are open until a person has looked at what was handed in.")
    still_open = len(states) - unclear
    if still_open:
        found.append(f"{still_open} labs of students are open; run the same make class again to grade them.")
    return found


def leaderboard_page(book: Book) -> str:
    """Return the leaderboard page, with nicknames only."""
    return _template("leaderboard.html").render(boards=leaderboard.boards(book))


def write_students(book: Book, folder: Path, done: Callable[[], None]) -> None:
    """Write a folder per student with index.html and one page per lab; call `done` after each student."""
    for row in book.rows:
        place = folder / row.id
        place.mkdir(parents=True, exist_ok=True)
        for cell in row.cells:
            _write_lab(book, row, cell, place / f"{cell.unit.name}.html")
        replace(place / "index.html", _student(book, row))
        done()


def _student(book: Book, row: Row) -> str:
    links = {cell.unit.name: f"{quote(cell.unit.name)}.html" if cell.results else "" for cell in row.cells}
    late = {cell.unit.name: late_words(cell) for cell in row.cells}
    return _template("student.html").render(
        row=row, links=links, late=late, policy=policy_words(book), together=together_words(book, row)
    )


def _write_lab(book: Book, row: Row, cell: Cell, path: Path) -> None:
    if cell.results is None:
        path.unlink(missing_ok=True)
        return
    notes = lab_notes(book, row, cell)
    stamp = STAMP.format(" ".join([cell.sha256, book.run.grader_sha256, *notes]).replace("--", "- -"))
    if path.exists():
        with open(path, encoding="utf-8") as page:
            if page.read(len(stamp)) == stamp:
                return
    results = reading.read(cell.results)
    replace(path, stamp + render(shown_to_students(results, cell.unit.lab), notes))


def shown_to_students(results: Results, lab: str) -> Results:
    """Return a copy of the results without paths of the grading machine."""
    asked = RunOptions(labs=lab, tier=AUTO if results.tier == "gpu" else results.tier)
    return results.model_copy(update={"source": SOURCE, "command": command_of(asked.arguments())})


def lab_notes(book: Book, row: Row, cell: Cell) -> list[str]:
    """Return the notes below the points of a lab: partners, attempts, the late penalty, points by hand."""
    notes = [together] if (together := together_words(book, row)) else []
    notes += [f"Graded more than once: {cell.counts}."] if cell.counts else []
    if book.policy and book.policy.due_of(row.id, cell.unit.lab):
        due = book.policy.due_of(row.id, cell.unit.lab)
        moment = cell.moment and cell.moment.astimezone(zoneinfo.ZoneInfo(book.policy.timezone))
        when = f"handed in {moment:%Y-%m-%d %H:%M:%S}, " if moment else ""
        words = f"Due {due:%Y-%m-%d %H:%M:%S} {book.policy.timezone}; {when}{late_words(cell)}"
        notes.append(
            f"{words}: {text(cell.raw)} points before the late penalty, {text(cell.final)} after it."
        )
    for given in cell.given:
        note = f", {given.note}" if given.note else ""
        notes.append(
            f"{given.criterion}: {text(given.points)} of {text(given.of)} points, graded by hand{note}."
        )
    return notes


def together_words(book: Book, row: Row) -> str:
    """Say with whom a student handed in; empty for a student's own submission."""
    partners = row.intake.partners if row.intake else []
    names = {one.id: one.name for one in book.rows}
    return (
        f"Handed in together with {', '.join(names.get(one, one) for one in partners)}." if partners else ""
    )


def late_words(cell: Cell) -> str:
    """Return the late days, the tokens used and the penalty, in words."""
    late = cell.late
    if not late.days:
        return "in time"
    tokens = f", {late.tokens} token{'s' if late.tokens > 1 else ''} used" if late.tokens else ""
    return f"{late.days} day{'s' if late.days > 1 else ''} late{tokens}, {100 * float(late.lost):g} % off"


def policy_words(book: Book) -> str:
    """Describe the late policy in a few sentences for students; empty without a policy."""
    policy = book.policy
    if policy is None:
        return ""
    words = (
        f"Each day late costs {policy.percent_per_day:g} % of the points, at most {policy.most_percent:g} %."
    )
    if policy.grace_minutes:
        words += f" {policy.grace_minutes:g} minutes after the due date count as in time."
    if policy.most_days is not None:
        words += f" A submission more than {policy.most_days} days late gets no points."
    if policy.tokens:
        words += f" Tokens are free late days: {policy.tokens} in all, used where they save the most points."
    return words


def _template(name: str):
    return environment(Path(__file__).with_name("templates")).get_template(name)
