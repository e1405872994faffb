"""Write the gradebook of a run folder; policy, rubric and roster are kept there for the next call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from grader.classroom.gradebook import imports, late, pages, rubric, tables
from grader.classroom.gradebook.book import Book
from grader.classroom.gradebook.reading import CHANGED, read, read_run
from grader.classroom.intake import roster as rosters
from grader.classroom.run_folder import RunFolder
from grader.system.files import read_bytes, replace

FOLDER = "gradebook"  # in the run folder
GIVEN = "given"  # in the gradebook's folder: policy, rubric and roster of the last call
MOST_BYTES = 8 << 20


@dataclass(frozen=True)
class Asked:
    """Options of one call; policy, rubric and roster default to those of the last call."""

    out: Path
    roster: Path | None = None
    policy: Path | None = None
    rubric: Path | None = None
    leaderboard: bool = False


@dataclass(frozen=True)
class Made:
    """The gradebook's folder, the number of students, and warnings for the instructor."""

    folder: Path
    students: int
    warnings: tuple[str, ...]


def make(
    asked: Asked, begin: Callable[[int], None] = lambda _: None, done: Callable[[], None] = lambda: None
) -> Made:
    """Write CSV files and pages of a run folder, finished or not, into OUT/gradebook.

    `begin` is called with the number of students, `done` after each student. Raises BookError, LateError,
    RubricError or RosterError, with one line each, before anything is written; OSError if writing fails.
    """
    run_folder = RunFolder(asked.out)
    run = read_run(run_folder)
    folder, given = asked.out / FOLDER, asked.out / FOLDER / GIVEN
    roster_file = _latest(asked.roster, given / "roster.csv")
    roster = rosters.read(roster_file).students if roster_file else None
    students = {*run.students, *(roster or {})}
    policy_file = _latest(asked.policy, given / "late.toml")
    policy = late.read(policy_file) if policy_file else None
    points = _rubric(asked.rubric, given / "rubric.csv", students, [unit.name for unit in run.units])
    book = read(run_folder, policy, points, roster)
    warnings = _unknown(policy, policy_file, book, students)
    warnings += _changed(book)
    texts = {
        "grades.csv": tables.grades(book),
        "canvas.csv": imports.canvas(book),
        "moodle.csv": imports.moodle(book),
    }
    warnings += tuple(line for table in texts.values() for line in table.warnings)
    given.mkdir(parents=True, exist_ok=True)
    for source, place in ((asked.roster, "roster.csv"), (asked.policy, "late.toml")):
        if source:
            replace(given / place, read_bytes(source, MOST_BYTES))
    if asked.rubric:
        rubric.write(given / "rubric.csv", points)
    for name, table in texts.items():
        replace(folder / name, table.text)
    begin(len(book.rows))
    pages.write_students(book, folder / "students", done)
    replace(folder / "class.html", pages.class_page(book, warnings))
    if asked.leaderboard:
        replace(folder / "leaderboard.html", pages.leaderboard_page(book))
    else:
        (folder / "leaderboard.html").unlink(missing_ok=True)
    return Made(folder, len(book.rows), warnings)


def _latest(given: Path | None, kept: Path) -> Path | None:
    return given or (kept if kept.exists() else None)


def _rubric(given: Path | None, kept: Path, students, units) -> list[rubric.Given]:
    """Return the manually graded points; lines of a new file replace earlier ones with the same key."""
    old = rubric.read(kept, students, units) if kept.exists() else []
    return rubric.merged(given, old, rubric.read(given, students, units)) if given else old


def _changed(book: Book) -> tuple[str, ...]:
    """Return a warning if a results file is not the one that was graded."""
    names = [row.id for row in book.rows if any(CHANGED in cell.looks for cell in row.cells)]
    return (f"{CHANGED}, so the lab is open again: {', '.join(names)}",) if names else ()


def _unknown(policy, file, book: Book, students: set[str]) -> tuple[str, ...]:
    labs: Mapping[str, None] = dict.fromkeys(unit.lab for unit in book.run.units)
    return (
        tuple(f"{file.name}: {one}" for one in late.unknown_names(policy, students, set(labs)))
        if policy
        else ()
    )
