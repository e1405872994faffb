"""Read the gradebook from a run folder, finished or not; every student gets a row."""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from grader.classroom import records
from grader.classroom.gradebook import flags
from grader.classroom.gradebook.book import EXCUSED, OPEN, Book, Cell, Row
from grader.classroom.gradebook.facts import exercises_of
from grader.classroom.gradebook.late import LatePolicy
from grader.classroom.gradebook.people import name_of
from grader.classroom.gradebook.rubric import Given
from grader.classroom.gradebook.tokens import spend
from grader.classroom.grading import receipts, run_secret
from grader.classroom.records import ROSTER, Intake, RunRecord, State, TaskRecord, Unit
from grader.classroom.run_folder import RunFolder, StudentFolder, UnitFolder
from grader.results import points, reading
from grader.results.models import MOST_BYTES
from grader.system.files import finding, read_bytes

CHANGED = "results.json or its receipt was changed after it was graded"


class BookError(Exception):
    """The run folder is missing or one of its files is damaged; the message is one line."""


def read_run(folder: RunFolder) -> RunRecord:
    """Read run.json. Raises BookError if the folder has no class run."""
    try:
        return records.read(folder.run, RunRecord)
    except FileNotFoundError:
        raise BookError(
            f"{folder.run}: no class run in this folder; make class SUBMISSIONS=... makes one"
        ) from None
    except (OSError, ValueError) as error:
        raise BookError(f"{folder.run}: {_words(error)}") from None


def read(
    folder: RunFolder,
    policy: LatePolicy | None = None,
    rubric: Sequence[Given] = (),
    roster: Mapping[str, Mapping[str, str]] | None = None,
) -> Book:
    """Read the gradebook of a run folder; `roster` replaces the one of the run. Raises BookError."""
    run = read_run(folder)
    ids = sorted({*run.students, *(roster or {})})
    key = _sealing_key(folder, run)
    rows = tuple(_row(folder, run, student, policy, rubric, roster, key) for student in ids)
    return Book(
        folder,
        run,
        rows,
        policy,
        _maybe(folder.selftest, records.SelfTest),
        _maybe(folder.drift, records.Drift),
    )


def _row(folder, run: RunRecord, student: str, policy, rubric, roster, key: bytes | None) -> Row:
    place = folder.student(student)
    intake = _maybe(place.intake, Intake)
    line = dict((roster or {}).get(student, {}) or (intake.roster if intake else {}))
    if intake and roster is not None:
        intake = intake.model_copy(update={"on_roster": student in roster, "roster": line})
    elif intake and student in run.gone:
        intake = intake.model_copy(update={"on_roster": False})  # of an earlier roster
    given = [one for one in rubric if one.student == student]
    cells = [
        _cell(place, unit, tuple(one for one in given if one.unit == unit.name), intake, key)
        for unit in run.units
    ]
    moment = _moment(intake.handed_in) if intake else None
    cells = [replace(cell, moment=_handed_in(intake, cell) or moment) for cell in cells]
    left = 0
    if policy:
        cells = [_excused(cell) if policy.is_excused(student, cell.unit.lab) else cell for cell in cells]
        cells, left = _late(policy, student, cells)
    looks = flags.of_student(intake, run.unknown, run.gone, policy, moment, [c.late.days for c in cells])
    return Row(student, name_of(student, line), line, intake, tuple(cells), looks, left)


def _cell(
    place: StudentFolder, unit: Unit, given: tuple[Given, ...], intake: Intake | None, key: bytes | None
) -> Cell:
    folder = place.unit(unit.name)
    task = _maybe(folder.task, TaskRecord)
    if task is None:
        # In an unfinished run, a student without a submission has no task yet.
        nothing = intake is None or intake.kind == "nothing"
        state, what = (State.MISSING.value, "nothing was handed in") if nothing else (OPEN, "not graded yet")
        open_points = 0.0 if nothing else unit.max_points
        return Cell(unit, state, what, not_graded=open_points, max_points=unit.max_points, given=given)
    if task.state is State.GRADED:
        return _graded(folder, unit, given, task, key)
    open_points = unit.max_points if task.state in (State.FAULT, State.NOT_COLLECTED) else 0.0
    return Cell(
        unit, task.state.value, task.what, not_graded=open_points, max_points=unit.max_points, given=given,
        looks=flags.of_state(task), seconds=task.seconds,
    )  # fmt: skip


def _graded(
    folder: UnitFolder, unit: Unit, given: tuple[Given, ...], task: TaskRecord, key: bytes | None
) -> Cell:
    try:
        data = read_bytes(folder.results, MOST_BYTES)
    except (OSError, ValueError):
        data = b""
    digest = hashlib.sha256(data).hexdigest()
    if digest != task.results_sha256 or not receipts.fits(folder, key):
        what = "results.json does not match task.json and receipt.json; run make class again to grade it"
        return Cell(
            unit, OPEN, what, not_graded=unit.max_points, max_points=unit.max_points, given=given,
            looks=(CHANGED,),
        )  # fmt: skip
    try:
        results = reading.parse(data)
    except ValueError as error:
        raise BookError(f"{folder.results}: {_words(error)}") from None
    notes, looks = flags.of_results(results)
    score = points.score_of(results.items)
    return Cell(
        unit, State.GRADED.value, "", exercises_of(results, score), score.earned / 100,
        score.not_graded / 100, score.most / 100, given, notes=notes, looks=looks, results=folder.results,
        sha256=digest, seconds=task.seconds, counts=task.counts, moment=_moment(task.handed_in),
    )  # fmt: skip


def _sealing_key(folder: RunFolder, run: RunRecord) -> bytes | None:
    """Return the key of the receipts' seals, None if it is not in the folder."""
    key = run_secret.sealing_key(folder)
    if key is None and not run.seal_commitment and folder.secret.exists():
        return read_bytes(folder.secret).strip()  # a run that was begun when there was one key
    return key


def _excused(cell: Cell) -> Cell:
    """Return a cell that does not count."""
    return replace(
        cell, state=EXCUSED, what="excused: this lab does not count", points=0.0, not_graded=0.0, given=(),
        exercises=(), looks=(),
    )  # fmt: skip


def _late(policy: LatePolicy, student: str, cells: list[Cell]) -> tuple[list[Cell], int]:
    """Return the cells with their late penalties, and the number of tokens left."""
    far = datetime.datetime.max
    order = sorted(
        (k for k, cell in enumerate(cells) if cell.state == State.GRADED.value and cell.moment),
        key=lambda k: (policy.due_of(student, cells[k].unit.lab) or far, k),
    )
    days = [policy.days_late(student, cells[k].unit.lab, cells[k].moment) for k in order]
    tokens = policy.tokens_of(student)
    spent = spend(policy, [(cells[k].raw, n) for k, n in zip(order, days, strict=True)], tokens)
    by_cell = dict(zip(order, spent, strict=True))
    cells = [replace(cell, late=by_cell[k]) if k in by_cell else cell for k, cell in enumerate(cells)]
    return cells, tokens - sum(late.tokens for late in spent)


def _handed_in(intake: Intake | None, cell: Cell) -> datetime.datetime | None:
    """Return when the files that count were handed in, so that later work on other labs is not late.

    None if the roster has a hand-in time, or a file has no date.
    """
    if intake is None or intake.handed_in_by == ROSTER:
        return None
    return cell.moment or _moment(intake.changed(cell.unit.name))


def _moment(text: str | None) -> datetime.datetime | None:
    """Parse an ISO 8601 time; without a time zone it is UTC. None if it cannot be parsed."""
    if not text:
        return None
    try:
        moment = datetime.datetime.fromisoformat(text.strip().replace("Z", "+00:00"))
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=datetime.timezone.utc)


def _maybe(path: Path, model):
    """Read a record; None if the file is missing. Raises BookError if it is damaged."""
    try:
        return records.read(path, model)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise BookError(f"{path}: {_words(error)}") from None


def _words(error: Exception) -> str:
    return finding(error) if hasattr(error, "errors") else str(error)
