"""Erase one student from a run folder: files, results, logs, and every mention in its records."""

from __future__ import annotations

import csv
import io
import shutil
from dataclasses import dataclass
from pathlib import Path

from grader.classroom import records
from grader.classroom.grading.run_lock import Lock
from grader.classroom.records import Drift, Intake, RunRecord
from grader.classroom.run_folder import RunFolder
from grader.system.files import read_bytes, replace

GIVEN = "given"  # in the gradebook's folder
MOST_BYTES = 8 << 20


class EraseError(Exception):
    """The student cannot be erased; the message is the reason, and nothing was removed."""


@dataclass(frozen=True)
class Erased:
    """What was removed, and where the student may still be named."""

    removed: tuple[str, ...]
    left: tuple[str, ...]


def erase(out: Path, student: str, gradebook: Path) -> Erased:
    """Erase a student; `gradebook` is the folder of the gradebook, which the caller writes again.

    Raises EraseError if there is no such student, or if the grade of another one is in this folder.
    """
    run = RunFolder(out.resolve())
    with Lock(run.lock):
        record = _record(run)
        if student not in record.students:
            raise EraseError(f"{out}: no student {student} in this run")
        partners = _graded_with(run, student)
        if partners:
            words = ", ".join(partners)
            raise EraseError(
                f"{student} handed in together with {words}, whose grade is here: erase {words} first"
            )
        names = _names(run, student)
        removed = [str(path.relative_to(run.root)) for path in _folders(run, student, gradebook)]
        for path in _folders(run, student, gradebook):
            shutil.rmtree(path)
        shutil.rmtree(run.engine, ignore_errors=True)  # logs of finished commands, which name everybody
        _forget(run, record, student)
        _forget_beside(run, student)
        for file, column in (("roster.csv", None), ("rubric.csv", "student")):
            removed += _without_lines(
                gradebook / GIVEN / file, names if column is None else {student}, column
            )
        return Erased(tuple(removed), _left(gradebook, student))


def _record(run: RunFolder) -> RunRecord:
    try:
        return records.read(run.run, RunRecord)
    except (OSError, ValueError) as error:
        raise EraseError(f"{run.run}: no class run in this folder ({error})") from None


def _graded_with(run: RunFolder, student: str) -> list[str]:
    """Return the students whose grade is in this student's folder."""
    intakes = [records.read(path, Intake) for path in run.students.glob("*/intake.json")]
    return sorted(one.id for one in intakes if one.graded_with == student)


def _names(run: RunFolder, student: str) -> set[str]:
    """Return the id and every cell of the roster's row that identifies the student."""
    try:
        line = records.read(run.student(student).intake, Intake).roster
    except (OSError, ValueError):
        line = {}
    return {student, *(value for column, value in line.items() if "id" in column.lower() or "@" in value)} - {
        ""
    }


def _folders(run: RunFolder, student: str, gradebook: Path) -> list[Path]:
    places = (run.student(student).root, gradebook / "students" / student)
    return [path for path in places if path.is_dir()]


def _forget(run: RunFolder, record: RunRecord, student: str) -> None:
    """Remove the student from run.json and drift.json."""
    lists = {
        name: [one for one in getattr(record, name) if one != student]
        for name in ("students", "unknown", "gone")
    }
    records.write(run.run, record.model_copy(update=lists))
    if not run.drift.exists():
        return
    drift = records.read(run.drift, Drift)
    exercises = [
        one.model_copy(
            update={"verdicts_changed": [w for w in one.verdicts_changed if not w.startswith(f"{student}: ")]}
        )
        for one in drift.exercises
    ]
    regraded = [one for one in drift.regraded if not one.startswith(f"{student}/")]
    records.write(run.drift, drift.model_copy(update={"regraded": regraded, "exercises": exercises}))


def _forget_beside(run: RunFolder, student: str) -> None:
    """Remove the student from the records of partners."""
    for path in run.students.glob("*/intake.json"):
        intake = records.read(path, Intake)
        if student in intake.partners:
            others = [one for one in intake.partners if one != student]
            records.write(path, intake.model_copy(update={"partners": others}))


def _without_lines(path: Path, names: set[str], column: str | None) -> list[str]:
    """Remove the rows of a CSV that have one of the names, in one column or in any."""
    if not path.is_file():
        return []
    text = read_bytes(path, MOST_BYTES).decode("utf-8-sig")
    header, *rows = list(csv.reader(io.StringIO(text))) or [[]]
    at = header.index(column) if column else None
    kept = [row for row in rows if names.isdisjoint(row if at is None else row[at : at + 1])]
    if len(kept) == len(rows):
        return []
    written = io.StringIO()
    csv.writer(written, lineterminator="\n").writerows([header, *kept])
    replace(path, written.getvalue())
    return [f"{len(rows) - len(kept)} lines of {path.name}"]


def _left(gradebook: Path, student: str) -> tuple[str, ...]:
    """Return where the student may still be named, which this command does not change."""
    left = [
        "the folder of submissions, the roster and the platform: a later make class would take them in again"
    ]
    policy = gradebook / GIVEN / "late.toml"
    if policy.is_file() and student in policy.read_text("utf-8", "replace"):
        left.append(f"{policy}: it names {student}; remove the lines by hand")
    left.append("copies of this folder, and pages that were published")
    return tuple(left)
