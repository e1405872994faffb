"""Plan the gradings: units with a changed fingerprint, open units, and a share of blind regradings."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from grader.classroom import records
from grader.classroom.grading import attempts, fingerprint, run_secret
from grader.classroom.grading.attempts import FINAL, REQUESTED
from grader.classroom.grading.grade_unit import Task
from grader.classroom.intake.select import NOT_EXPECTED
from grader.classroom.records import Intake, State, TaskRecord, Unit
from grader.classroom.run_folder import RunFolder, UnitFolder

SHOWN = 5  # names in a sentence


@dataclass(frozen=True)
class Plan:
    """Tasks to grade now, all gradable tasks, and the (student, unit) pairs chosen for a blind regrading."""

    tasks: list[Task]
    gradable: list[Task]
    blind: list[tuple[str, str]]


@dataclass(frozen=True)
class Planner:
    """Settings that all tasks of a command share; `like` is a task without a student."""

    run: RunFolder
    secret: bytes
    like: Task
    hidden_sha256: str | None
    blind_share: float
    every_hand_in: bool = False  # an earlier hand-in that was graded is not graded again

    def plan(self, intakes: Mapping[str, Intake], units: Sequence[Unit], again: bool) -> Plan:
        """Plan the gradings of these students and units; `again` regrades all of them."""
        gradable = [
            self.task(intake, unit, False, again)
            for intake in intakes.values()
            for unit in units
            if self._has_files(intake, unit) and not intake.graded_with
        ]
        blind = self._blind([(task.student, task.unit.name) for task in gradable])
        by_name = {unit.name: unit for unit in units}
        second = [self.task(intakes[student], by_name[unit], True, again) for student, unit in blind]
        everything = {(task.student, task.unit.name, str(task.blind)): task for task in (*gradable, *second)}
        ordered = run_secret.order(self.secret, "order", everything)
        tasks = [everything[key] for key in ordered if not done(everything[key])]
        return Plan(tasks, [*gradable, *second], blind)

    def task(self, intake: Intake, unit: Unit, blind: bool, again: bool) -> Task:
        """Return the task for one unit of one student."""
        folder = self.run.student(intake.id)
        place = folder.unit(unit.name, blind)
        files = fingerprint.files_of(intake, unit.name)
        attempt = self._attempt(place, unit, files, again)
        return replace(
            self.like,
            student=intake.id,
            unit=unit,
            blind=blind,
            attempt=attempt,
            seed=run_secret.seed(self.secret, intake.id, unit.name, attempt, blind),
            files=str(folder.files),
            folder=str(attempts.place_of(place, attempt).root),
            files_sha256=attempts.files_sha256(files),
            handed_in=intake.changed(unit.name),
            fingerprint=self.fingerprint(unit, files, attempt),
        )

    def _attempt(self, place: UnitFolder, unit: Unit, files: dict[str, str], again: bool) -> int:
        """Return the number of the attempt to grade: a new one if the last is finished and something changed.

        The number of an unfinished attempt stays, so that an interrupted command is continued.
        """
        last = attempts.newest(place)
        if last is None:
            return 1
        if self.every_hand_in and not again:
            graded = attempts.with_fingerprint(place, lambda number: self.fingerprint(unit, files, number))
            if graded:
                return graded.attempt
        if not attempts.intact(attempts.place_of(place, last.attempt), last):
            other = last.files_sha256 not in ("", attempts.files_sha256(files))
            return last.attempt + (1 if self.every_hand_in and other else 0)
        changed = last.fingerprint != self.fingerprint(unit, files, last.attempt)
        return last.attempt + (1 if again or changed else 0)

    def fingerprint(self, unit: Unit, files: dict[str, str], attempt: int) -> str:
        """Return the hash of everything that affects the result of one attempt."""
        return fingerprint.of_attempt(
            files, fingerprint.grader(), fingerprint.measures(unit.name), self.like.tier, self.like.keyword,
            self.hidden_sha256, attempt,
        )  # fmt: skip

    def _has_files(self, intake: Intake, unit: Unit) -> bool:
        """Whether there is something to grade; writes the record of a unit without files."""
        files = fingerprint.files_of(intake, unit.name)
        if files:
            return True
        state, what = without_files(intake, unit.name)
        place = self.run.student(intake.id).unit(unit.name)
        attempts.archive(place)  # somebody who has withdrawn a file may hand it in again
        last = attempts.newest(place)
        attempt = last.attempt + (last.state in FINAL) if last else 1
        record = TaskRecord(
            student=intake.id, unit=unit.name, state=state, what=what, attempt=attempt,
            fingerprint=self.fingerprint(unit, files, attempt),
        )  # fmt: skip
        if not place.task.exists() or records.read(place.task, TaskRecord) != record:
            records.write(place.task, record)
            for left in (place.results, place.receipt, place.log):
                left.unlink(missing_ok=True)
        return False

    def _blind(self, gradable: list[tuple[str, str]]) -> list[tuple[str, str]]:
        """Choose a share of all units, at least one, with the secret as the only source of randomness."""
        count = math.ceil(self.blind_share * len(gradable)) if gradable and self.blind_share else 0
        return run_secret.order(self.secret, "blind", gradable)[:count]


def without_files(intake: Intake, unit: str) -> tuple[State, str]:
    """Return the state of a unit of which nothing was collected, and the reason."""
    if intake.problem:
        return State.REFUSED, intake.problem
    undecided = [one for one in intake.left_out if one.unit == unit and one.undecided]
    if undecided:
        return State.NOT_COLLECTED, undecided[0].why
    refused = [one for one in intake.left_out if one.unit == unit and one.why != NOT_EXPECTED]
    if refused:
        return State.REFUSED, f"{refused[0].found}: {refused[0].why}"
    others = [one.found for one in intake.could_be_answers(unit)]
    if others:
        more = f" and {len(others) - SHOWN} more" if len(others) > SHOWN else ""
        return State.NOT_COLLECTED, f"handed in under another name: {', '.join(others[:SHOWN])}{more}"
    return State.MISSING, "no file was handed in"


def done(task: Task) -> bool:
    """Whether the run folder has the result of exactly this task."""
    place = UnitFolder(_path(task))
    record = attempts.record_of(place)
    return record is not None and record.fingerprint == task.fingerprint and attempts.intact(place, record)


def unit_folder(task: Task) -> UnitFolder:
    """Return the folder of the task's unit, which has the attempt that counts."""
    return RunFolder(Path(task.run)).student(task.student).unit(task.unit.name, task.blind)


def keep_earlier(tasks: Sequence[Task]) -> None:
    """Keep the attempts before those that are to be graded now."""
    for task in tasks:
        attempts.archive(unit_folder(task))


def reopen(tasks: Sequence[Task]) -> None:
    """Mark tasks for regrading, so that a later command resumes an interrupted regrading."""
    for task in tasks:
        place = UnitFolder(_path(task))
        record = TaskRecord(
            student=task.student, unit=task.unit.name, state=State.FAULT, what=REQUESTED,
            fingerprint=task.fingerprint, attempt=task.attempt, files_sha256=task.files_sha256,
        )  # fmt: skip
        records.write(place.task, record)


def without_receipt(tasks: Sequence[Task]) -> Iterator[Task]:
    """Yield graded tasks whose receipt is missing, because a command was interrupted."""
    for task in tasks:
        place = UnitFolder(_path(task))
        if done(task) and place.results.exists() and not place.receipt.exists():
            yield task


def _path(task: Task) -> Path:
    return Path(task.folder)
