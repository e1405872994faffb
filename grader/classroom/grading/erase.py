"""Erase one student from a run folder: files, results, logs, and every mention in its records."""

from __future__ import annotations

import csv
import io
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from grader.classroom import records
from grader.classroom.grading.run_lock import Lock
from grader.classroom.intake.roster import delimiter, own_id
from grader.classroom.intake.student_ids import safe_id
from grader.classroom.records import Drift, Intake, RunRecord, TaskRecord
from grader.classroom.run_folder import RunFolder
from grader.system.files import read_bytes, replace

GIVEN = "given"  # in the gradebook's folder
MOST_BYTES = 8 << 20
ERASED = "(erased)"  # in place of an id in the records of others


class EraseError(Exception):
    """The student cannot be erased; the message is the reason, and nothing was removed."""


@dataclass(frozen=True)
class Erased:
    """What was removed, and where the student may still be named."""

    removed: tuple[str, ...]
    left: tuple[str, ...]


def erase(out: Path, student: str, gradebook: Path) -> Erased:
    """Erase a student; `gradebook` is the folder of the gradebook, which the caller writes again.

    Raises EraseError if there is no such student.
    """
    run = RunFolder(out.resolve())
    with Lock(run.lock):
        record = _record(run)
        if student not in record.students:
            raise EraseError(f"{out}: no student {student} in this run")
        removed = [str(path.relative_to(run.root)) for path in _folders(run, student, gradebook)]
        for path in _folders(run, student, gradebook):
            shutil.rmtree(path)
        shutil.rmtree(run.engine, ignore_errors=True)  # logs of finished commands, which name everybody
        _forget(run, record, student)
        _forget_beside(run, student)
        removed += _without_lines(
            gradebook / GIVEN / "roster.csv", lambda line: safe_id(own_id(line)) == student
        )
        removed += _without_lines(
            gradebook / GIVEN / "rubric.csv", lambda line: line.get("student") == student
        )
        return Erased(tuple(removed), _left(run, gradebook, student))


def _record(run: RunFolder) -> RunRecord:
    try:
        return records.read(run.run, RunRecord)
    except (OSError, ValueError) as error:
        raise EraseError(f"{run.run}: no class run in this folder ({error})") from None


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
    """Remove the student from the records of partners, and of submissions that could be theirs."""
    for path in run.students.glob("*/intake.json"):
        intake = records.read(path, Intake)
        partners = [one for one in intake.partners if one != student]
        problem = re.sub(rf"(?<![\w.@+-]){re.escape(student)}(?![\w.@+-])", ERASED, intake.problem)
        graded_with = "" if intake.graded_with == student else intake.graded_with
        update = {"partners": partners, "problem": problem, "graded_with": graded_with}
        if intake.model_copy(update=update) == intake:
            continue
        records.write(path, intake.model_copy(update=update))
        for task in path.parent.glob("*/task.json"):
            record = records.read(task, TaskRecord)
            if record.what == intake.problem:
                records.write(task, record.model_copy(update={"what": problem}))


def _without_lines(path: Path, is_theirs: Callable[[dict[str, str]], bool]) -> list[str]:
    """Remove the rows of a CSV that are the student's."""
    if not path.is_file():
        return []
    text = read_bytes(path, MOST_BYTES).decode("utf-8-sig")
    rows = list(csv.reader(io.StringIO(text), delimiter=delimiter(text)))
    header = [cell.strip() for cell in rows[0]] if rows else []
    lines = [dict(zip(header, (cell.strip() for cell in row), strict=False)) for row in rows[1:]]
    kept = [row for row, line in zip(rows[1:], lines, strict=True) if not is_theirs(line)]
    removed = len(lines) - len(kept)
    if not removed:
        return []
    written = io.StringIO()
    csv.writer(written, lineterminator="\n", delimiter=delimiter(text)).writerows([*rows[:1], *kept])
    replace(path, written.getvalue())
    return [f"{removed} line{'s' if removed > 1 else ''} of {path.name}"]


def _left(run: RunFolder, gradebook: Path, student: str) -> tuple[str, ...]:
    """Return where the student may still be named, which this command does not change."""
    left = [
        "the folder of submissions, the roster and the platform: a later make class would take them in again"
    ]
    policy = gradebook / GIVEN / "late.toml"
    if policy.is_file() and student in policy.read_text("utf-8", "replace"):
        left.append(
            f"{policy}: it names {student}, and so does a warning on class.html; remove the "
            "lines by hand, then make gradebook"
        )
    receipts = run.students.glob("*/*/receipt.json")
    told = f'"student": "{student}"'
    named = sorted({path.parents[1].name for path in receipts if told in path.read_text("utf-8", "replace")})
    if named:
        left.append(f"receipts of {', '.join(named)}, who handed in together with {student}: they are sealed")
    left.append("copies of this folder, and pages that were published")
    return tuple(left)
