"""The pages of a class: one of the whole, one a student, one a lab of a student, and a leaderboard."""

from __future__ import annotations

import zoneinfo
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

from grader.files import replace
from grader.gradebook import leaderboard, view
from grader.gradebook.book import Book, Cell, Row
from grader.page.render import environment, render
from grader.results import Results

SOURCE = "what you handed in"  # in place of a path of the machine that graded
STAMP = "<!-- {} -->\n"  # of what a page was made from: the same need not be drawn again


def class_page(book: Book, warnings: tuple[str, ...]) -> str:
    """The class, for whoever grades it."""
    return _template("class.html").render(
        book=book,
        run=book.run,
        looks=sum(bool(row.needs_a_look) for row in book.rows),
        alarms=(*_alarms(book), *warnings),
        spreads=view.spreads(book),
        exercises=view.exercises(book),
        shapes=view.shapes(book),
        selftest=book.selftest,
        drift=book.drift,
        links={row.id: f"students/{quote(row.id)}/index.html" for row in book.rows},
    )


def _alarms(book: Book) -> list[str]:
    """What is wrong with the run itself."""
    found = []
    if book.selftest and not book.selftest.held:
        found.append(
            "The self-test failed: the machine or the grader is at fault, and no grade should be published."
        )
    changed = sum(len(one.verdicts_changed) for one in book.drift.exercises) if book.drift else 0
    if changed:
        found.append(f"{changed} verdicts changed in a second, blind grading.")
    still_open = sum(cell.is_open for row in book.rows for cell in row.cells)
    if still_open:
        found.append(f"{still_open} labs of students are open; the same make class goes on with them.")
    return found


def leaderboard_page(book: Book) -> str:
    """Nicknames and percentages, to be published."""
    return _template("leaderboard.html").render(boards=leaderboard.boards(book))


def write_students(book: Book, folder: Path, done: Callable[[], None]) -> None:
    """A folder a student: index.html and a page a lab; `done` is called after each student."""
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
    return _template("student.html").render(row=row, links=links, late=late, policy=policy_words(book))


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
    results = Results.model_validate_json(cell.results.read_bytes())
    replace(path, stamp + render(shown_to_students(results, cell.unit.lab), notes))


def shown_to_students(results: Results, lab: str) -> Results:
    """The same results without paths of the machine that graded."""
    command = f"python -m grader grade --lab {lab}" + (
        f" --tier {results.tier}" if results.tier != "gpu" else ""
    )
    return results.model_copy(update={"source": SOURCE, "command": command})


def lab_notes(book: Book, row: Row, cell: Cell) -> list[str]:
    """What stands below the points of a lab: being late, and points that a person gave."""
    notes = []
    if book.policy and book.policy.due_of(row.id, cell.unit.lab):
        due = book.policy.due_of(row.id, cell.unit.lab)
        moment = cell.moment and cell.moment.astimezone(zoneinfo.ZoneInfo(book.policy.timezone))
        when = f"handed in {moment:%Y-%m-%d %H:%M:%S}, " if moment else ""
        words = f"Due {due:%Y-%m-%d %H:%M:%S} {book.policy.timezone}; {when}{late_words(cell)}"
        notes.append(f"{words}: {cell.raw:.1f} points before, {cell.final:.1f} after.")
    for given in cell.given:
        note = f", {given.note}" if given.note else ""
        notes.append(f"{given.criterion}: {given.points:g} of {given.of:g} points, given by a person{note}.")
    return notes


def late_words(cell: Cell) -> str:
    """How late, the tokens, and what it costs."""
    late = cell.late
    if not late.days:
        return "in time"
    tokens = f", {late.tokens} token{'s' if late.tokens > 1 else ''} spent" if late.tokens else ""
    return f"{late.days} day{'s' if late.days > 1 else ''} late{tokens}, {100 * float(late.lost):g} % off"


def policy_words(book: Book) -> str:
    """The policy in a sentence or two."""
    policy = book.policy
    if policy is None:
        return ""
    said = (
        f"Each day late costs {policy.percent_per_day:g} % of the points, at most {policy.most_percent:g} %."
    )
    if policy.grace_minutes:
        said += f" {policy.grace_minutes:g} minutes of grace."
    if policy.most_days is not None:
        said += f" Nothing counts that is more than {policy.most_days} days late."
    if policy.tokens:
        said += f" Free days: {policy.tokens}, spent where they keep most points; a token is one of them."
    return said


def _template(name: str):
    return environment(Path(__file__).with_name("templates")).get_template(name)
