"""What is to be graded: units whose fingerprint changed, those left open, and a blind share of all."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from grader import __version__
from grader.batch import fingerprint, models, seeds
from grader.batch.layout import RunFolder, UnitFolder
from grader.batch.models import Intake, State, TaskRecord, Unit
from grader.batch.work import Task

FINAL = (State.GRADED, State.TIMEOUT)


@dataclass(frozen=True)
class Plan:
    """Tasks that are open, all that there are, and the units that were chosen for a second, blind grading."""

    tasks: list[Task]
    gradable: list[Task]
    blind: list[tuple[str, str]]


@dataclass(frozen=True)
class Planner:
    """What all tasks of a command have in common; `like` is a task without a student."""

    run: RunFolder
    secret: bytes
    like: Task
    hidden_sha256: str | None
    blind_share: float

    def plan(self, intakes: Mapping[str, Intake], units: Sequence[Unit], again: bool) -> Plan:
        """What is open for these students and units; `again` opens all of it."""
        gradable = [
            self.task(intake, unit, False, again)
            for intake in intakes.values()
            for unit in units
            if self._has_files(intake, unit)
        ]
        blind = self._blind([(task.student, task.unit.name) for task in gradable])
        by_name = {unit.name: unit for unit in units}
        second = [self.task(intakes[student], by_name[unit], True, again) for student, unit in blind]
        everything = {(task.student, task.unit.name, str(task.blind)): task for task in (*gradable, *second)}
        ordered = seeds.order(self.secret, "order", everything)
        tasks = [everything[key] for key in ordered if not done(everything[key])]
        return Plan(tasks, [*gradable, *second], blind)

    def task(self, intake: Intake, unit: Unit, blind: bool, again: bool) -> Task:
        """The grading of one unit of one student."""
        folder = self.run.student(intake.id)
        place = folder.unit(unit.name, blind)
        attempt = _attempt(place) + (1 if again and place.task.exists() else 0)
        files = fingerprint.files_of(intake, unit.name)
        return replace(
            self.like,
            student=intake.id,
            unit=unit,
            blind=blind,
            attempt=attempt,
            seed=seeds.seed(self.secret, intake.id, unit.name, attempt, blind),
            files=str(folder.files),
            folder=str(place.root),
            fingerprint=self._fingerprint(unit, files, attempt),
        )

    def _fingerprint(self, unit: Unit, files: dict[str, str], attempt: int) -> str:
        return fingerprint.of_task(
            files=files, grader=__version__, modules=fingerprint.grader(), lab=fingerprint.lab(unit.name),
            tier=self.like.tier, keyword=self.like.keyword, hidden=self.hidden_sha256, attempt=attempt,
        )  # fmt: skip

    def _has_files(self, intake: Intake, unit: Unit) -> bool:
        """Whether there is something to grade; a unit without a file gets its record here."""
        files = fingerprint.files_of(intake, unit.name)
        if files:
            return True
        refused = [one for one in intake.left_out if one.unit == unit.name]
        state, what = State.MISSING, "no file of this unit was handed in"
        if intake.problem or refused:
            state = State.REFUSED
            what = intake.problem or f"{refused[0].found}: {refused[0].why}"
        place = self.run.student(intake.id).unit(unit.name)
        record = TaskRecord(
            student=intake.id, unit=unit.name, state=state, what=what, attempt=_attempt(place),
            fingerprint=self._fingerprint(unit, files, _attempt(place)),
        )  # fmt: skip
        if not place.task.exists() or models.read(place.task, TaskRecord) != record:
            models.write(place.task, record)
            for left in (place.results, place.receipt, place.log):
                left.unlink(missing_ok=True)
        return False

    def _blind(self, gradable: list[tuple[str, str]]) -> list[tuple[str, str]]:
        """A share of all units, at least one, chosen by the secret alone."""
        count = math.ceil(self.blind_share * len(gradable)) if gradable and self.blind_share else 0
        return seeds.order(self.secret, "blind", gradable)[:count]


def done(task: Task) -> bool:
    """Whether the run folder has the result of this very task."""
    place = UnitFolder(_path(task))
    try:
        record = models.read(place.task, TaskRecord)
    except (FileNotFoundError, ValueError):
        return False
    if record.fingerprint != task.fingerprint or record.state not in FINAL:
        return False
    if record.state is State.TIMEOUT:
        return True
    return place.results.exists() and _sha256(place) == record.results_sha256


def reopen(tasks: Sequence[Task]) -> None:
    """Mark these as asked for again, so that a later command goes on with them."""
    for task in tasks:
        place = UnitFolder(_path(task))
        record = TaskRecord(
            student=task.student, unit=task.unit.name, state=State.FAULT, what="asked to be graded again",
            fingerprint=task.fingerprint, attempt=task.attempt,
        )  # fmt: skip
        models.write(place.task, record)


def without_receipt(tasks: Sequence[Task]) -> Iterator[Task]:
    """Graded tasks whose receipt is missing, or of an earlier grading."""
    for task in tasks:
        place = UnitFolder(_path(task))
        if not done(task) or not place.results.exists():
            continue
        try:
            if models.read(place.receipt, models.Receipt).results_sha256 == _sha256(place):
                continue
        except (FileNotFoundError, ValueError):
            pass
        yield task


def _attempt(place: UnitFolder) -> int:
    try:
        return models.read(place.task, TaskRecord).attempt
    except (FileNotFoundError, ValueError):
        return 1


def _sha256(place: UnitFolder) -> str:
    return hashlib.sha256(place.results.read_bytes()).hexdigest()


def _path(task: Task) -> Path:
    return Path(task.folder)
