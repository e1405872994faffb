"""Collect submissions: one folder per student with the collected files, and a record of everything else."""

from __future__ import annotations

import datetime
import hashlib
import shutil
from collections.abc import Sequence

from grader.classroom import records
from grader.classroom.intake import attempts
from grader.classroom.intake.attempts import Attempt, Policy
from grader.classroom.intake.entries import HandedIn
from grader.classroom.intake.expected_files import Collected
from grader.classroom.intake.roster import Roster
from grader.classroom.intake.select import Choice, Taken
from grader.classroom.intake.student_ids import plain
from grader.classroom.records import Intake, TakenFile
from grader.classroom.run_folder import RunFolder, StudentFolder
from grader.system.files import read_bytes
from grader.system.text import one_line


def collect(
    handed_in: HandedIn,
    roster: Roster,
    units: Sequence[Collected],
    run: RunFolder,
    policy: Policy = Policy.LAST,
    turn: int | None = None,
) -> Intake:
    """Copy a student's collected files into the run folder; return and write the record of the intake."""
    line = roster.students.get(handed_in.student)
    intake = Intake(id=handed_in.student, on_roster=line is not None, roster=line or {})
    intake.sources = [one_line(one.path.name) for one in handed_in.entries]
    intake.marked_late = any(one.words.late for one in handed_in.entries)
    intake.close_match, intake.doubtful = handed_in.close, handed_in.doubtful
    intake.partners = sorted(handed_in.partners)
    first = min((handed_in.student, *handed_in.partners))
    intake.graded_with = "" if first == handed_in.student else first
    choice = Choice()
    if handed_in.could_be:
        whose = " or ".join(handed_in.could_be)
        intake.problem = f"this could be the submission of {whose}: name it by the id of its student"
    else:
        tried = attempts.read(handed_in.entries, units)
        try:
            choice = attempts.together(tried, policy, turn)
        except Exception as error:  # an unexpected error affects one student, not the class
            intake.problem = f"the intake itself failed, {type(error).__name__}: {one_line(str(error))}"
        _describe(intake, tried, choice)
    intake.files = [_record_of(one) for one in choice.taken]
    intake.left_out = choice.shown
    intake.left_out_more = len(choice.left_out) - len(intake.left_out)
    _date(intake, choice)
    _keep(choice, intake, run.student(handed_in.student))
    return intake


def _describe(intake: Intake, tried: Sequence[Attempt], choice: Choice) -> None:
    """Record kind, commit and time of the attempt that counts, or why no attempt could be read."""
    if not tried:
        return
    readable = [one for one in tried if not one.problem]
    if not readable and not intake.problem:
        intake.problem = tried[0].problem
    taken = {id(file) for file in choice.taken}
    counting = [one for one in readable if any(id(file) in taken for file in one.choice.taken)]
    shown = max(counting or readable or tried, key=lambda one: one.moment(one.choice.taken) or 0.0)
    intake.kind, intake.commit = shown.kind, shown.commit
    if shown.submitted is not None:
        intake.handed_in, intake.handed_in_by = _utc(shown.submitted), shown.by


def _record_of(one: Taken) -> TakenFile:
    digest = hashlib.sha256(one.data).hexdigest()
    changed = _utc(one.modified) if one.modified else None
    found = one_line(one.found)
    return TakenFile(path=one.path, sha256=digest, bytes=len(one.data), found=found, changed=changed)


def _date(intake: Intake, choice: Choice) -> None:
    given = next((v for c, v in intake.roster.items() if plain(c) in ("submittedat", "handedin") and v), None)
    if given:
        intake.handed_in, intake.handed_in_by = given, records.ROSTER
    dates = [taken.modified for taken in choice.taken if taken.modified]
    if intake.handed_in is None and dates:
        intake.handed_in, intake.handed_in_by = _utc(max(dates)), "date of the newest file"


def _utc(seconds: float) -> str | None:
    try:
        moment = datetime.datetime.fromtimestamp(int(seconds), datetime.timezone.utc)
    except (ValueError, OverflowError, OSError):
        return None
    return moment.isoformat(timespec="seconds")


def _keep(choice: Choice, intake: Intake, folder: StudentFolder) -> None:
    """Replace the collected files in the run folder, all or none, then write the record."""
    folder.root.mkdir(parents=True, exist_ok=True)
    if not _same(intake, folder):
        part, old = folder.root / ".files.part", folder.root / ".files.old"
        for left in (part, old):
            shutil.rmtree(left, ignore_errors=True)
        part.mkdir()
        for taken in choice.taken:
            path = part / taken.path
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(taken.data)
            path.chmod(0o644)
        if folder.files.exists():
            folder.files.rename(old)
        part.rename(folder.files)
        shutil.rmtree(old, ignore_errors=True)
    records.write(folder.intake, intake)


def _same(intake: Intake, folder: StudentFolder) -> bool:
    """Whether the run folder already has exactly these files, so that a resumed run copies nothing."""
    there = {p.relative_to(folder.files).as_posix() for p in folder.files.rglob("*") if not p.is_dir()}
    if not folder.files.is_dir() or there != {one.path for one in intake.files}:
        return False
    return all(
        hashlib.sha256(read_bytes(folder.files / one.path)).hexdigest() == one.sha256 for one in intake.files
    )
