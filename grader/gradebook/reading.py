"""Read the book of a class from its run folder, finished or not; a row a student, whatever happened."""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from grader.batch import models
from grader.batch.layout import RunFolder, StudentFolder
from grader.batch.models import ROSTER, Intake, RunRecord, State, TaskRecord, Unit
from grader.files import finding, read_bytes
from grader.gradebook import flags
from grader.gradebook.book import OPEN, Book, Cell, Row
from grader.gradebook.facts import exercises_of
from grader.gradebook.late import LatePolicy
from grader.gradebook.people import name_of
from grader.gradebook.rubric import Given
from grader.gradebook.tokens import spend
from grader.results import MOST_BYTES, Results


class BookError(Exception):
    """There is no class run to make a gradebook of, or a file of it is damaged; in one line."""


def read_run(folder: RunFolder) -> RunRecord:
    """run.json; BookError where no class run lies there."""
    try:
        return models.read(folder.run, RunRecord)
    except FileNotFoundError:
        raise BookError(
            f"{folder.run}: no class run lies there; make class SUBMISSIONS=... makes one"
        ) from None
    except (OSError, ValueError) as error:
        raise BookError(f"{folder.run}: {_words(error)}") from None


def read(
    folder: RunFolder,
    policy: LatePolicy | None = None,
    rubric: Sequence[Given] = (),
    roster: Mapping[str, Mapping[str, str]] | None = None,
) -> Book:
    """The book of a run folder; a `roster` replaces the one that the class was graded with."""
    run = read_run(folder)
    ids = sorted({*run.students, *(roster or {})})
    rows = tuple(_row(folder, run, student, policy, rubric, roster) for student in ids)
    return Book(
        folder,
        run,
        rows,
        policy,
        _maybe(folder.selftest, models.SelfTest),
        _maybe(folder.drift, models.Drift),
    )


def _row(folder, run: RunRecord, student: str, policy, rubric, roster) -> Row:
    place = folder.student(student)
    intake = _maybe(place.intake, Intake)
    line = dict((roster or {}).get(student, {}) or (intake.roster if intake else {}))
    if intake and roster is not None:
        intake = intake.model_copy(update={"on_roster": student in roster, "roster": line})
    given = [one for one in rubric if one.student == student]
    cells = [
        _cell(place, unit, tuple(one for one in given if one.unit == unit.name), intake) for unit in run.units
    ]
    moment = _moment(intake.handed_in) if intake else None
    cells = [replace(cell, moment=_changed(intake, cell.unit.name) or moment) for cell in cells]
    left = 0
    if policy:
        cells, left = _late(policy, student, cells)
    looks = flags.of_student(intake, run.unknown, run.gone, policy, moment, [c.late.days for c in cells])
    return Row(student, name_of(student, line), line, intake, tuple(cells), looks, left)


def _cell(place: StudentFolder, unit: Unit, given: tuple[Given, ...], intake: Intake | None) -> Cell:
    folder = place.unit(unit.name)
    task = _maybe(folder.task, TaskRecord)
    if task is None:
        # Whoever handed in nothing has no task in a run that has not come to an end.
        nothing = intake is None or intake.kind == "nothing"
        state, what = (State.MISSING.value, "nothing was handed in") if nothing else (OPEN, "not graded yet")
        open_points = 0.0 if nothing else unit.max_points
        return Cell(unit, state, what, not_graded=open_points, max_points=unit.max_points, given=given)
    if task.state is State.GRADED:
        return _graded(folder, unit, given, task)
    open_points = unit.max_points if task.state is State.FAULT else 0.0
    return Cell(
        unit, task.state.value, task.what, not_graded=open_points, max_points=unit.max_points, given=given,
        looks=flags.of_state(task), seconds=task.seconds,
    )  # fmt: skip


def _graded(folder, unit: Unit, given: tuple[Given, ...], task: TaskRecord) -> Cell:
    try:
        data = read_bytes(folder.results, MOST_BYTES)
    except (OSError, ValueError):
        data = b""
    digest = hashlib.sha256(data).hexdigest()
    if digest != task.results_sha256:
        what = "its results.json is not the one that was graded; the same command grades it again"
        return Cell(unit, OPEN, what, not_graded=unit.max_points, max_points=unit.max_points, given=given)
    try:
        results = Results.model_validate_json(data)
    except ValueError as error:
        raise BookError(f"{folder.results}: {_words(error)}") from None
    notes, looks = flags.of_results(results)
    return Cell(
        unit, State.GRADED.value, "", exercises_of(results), results.points, results.not_graded_points,
        results.max_points, given, notes=notes, looks=looks, results=folder.results, sha256=digest,
        seconds=task.seconds,
    )  # fmt: skip


def _late(policy: LatePolicy, student: str, cells: list[Cell]) -> tuple[list[Cell], int]:
    """The cells with what being late cost them, and the tokens that are left."""
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


def _changed(intake: Intake | None, unit: str) -> datetime.datetime | None:
    """When the files of one lab last changed, so that later labs in one repository do not make it late.

    None where the roster says when it was handed in, or not every file has a date.
    """
    if intake is None or intake.handed_in_by == ROSTER:
        return None
    dates = [_moment(one.changed) for one in intake.files if one.path.startswith(f"{unit}/")]
    return max(dates) if dates and all(dates) else None


def _moment(text: str | None) -> datetime.datetime | None:
    """When it was handed in; a time without a zone, as a person writes one into a roster, is UTC."""
    if not text:
        return None
    try:
        moment = datetime.datetime.fromisoformat(text.strip().replace("Z", "+00:00"))
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=datetime.timezone.utc)


def _maybe(path: Path, model):
    """The record, or None where there is none yet; BookError where it is damaged."""
    try:
        return models.read(path, model)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise BookError(f"{path}: {_words(error)}") from None


def _words(error: Exception) -> str:
    return finding(error) if hasattr(error, "errors") else str(error)
