"""Collect submissions: one folder per student with the collected files, and a record of everything else."""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import os
import shutil
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from grader.classroom import records
from grader.classroom.intake import git_repositories
from grader.classroom.intake.contents import SKIPPED, Member, RefusedError, in_folder
from grader.classroom.intake.expected_files import Collected
from grader.classroom.intake.roster import Roster
from grader.classroom.intake.select import Choice, Taken, choose
from grader.classroom.intake.student_ids import Named, named, plain, safe_id
from grader.classroom.intake.zip_archives import in_zip
from grader.classroom.records import Intake, TakenFile
from grader.classroom.run_folder import RunFolder, StudentFolder
from grader.system.files import read_bytes
from grader.system.text import one_line


@dataclass
class HandedIn:
    """All entries of one student in the folder of submissions."""

    student: str
    entries: list[tuple[Path, Named]] = field(default_factory=list)


def by_student(submissions: Path, roster: Roster) -> tuple[dict[str, HandedIn], list[str]]:
    """Return submissions by student id, and the ids made up for submissions that match no student."""
    found: dict[str, HandedIn] = {}
    unknown = []
    for path in sorted(submissions.iterdir()):
        if path.name.startswith(".") or path.name in SKIPPED:
            continue
        words = named(path.name, path.is_dir() and not path.is_symlink())
        if words.text_only:
            continue
        student = roster.find(words.keys)
        if student is None:
            student = safe_id(words.keys[0] if len(words.keys) == 1 else f"{words.keys[1]}_{words.keys[0]}")
            if roster.students and student not in unknown:
                unknown.append(student)
        found.setdefault(student, HandedIn(student)).entries.append((path, words))
    return found, unknown


def collect(handed_in: HandedIn, roster: Roster, units: Sequence[Collected], run: RunFolder) -> Intake:
    """Copy a student's collected files into the run folder; return and write the record of the intake."""
    line = roster.students.get(handed_in.student)
    intake = Intake(id=handed_in.student, on_roster=line is not None, roster=line or {})
    intake.sources = [one_line(path.name) for path, _ in handed_in.entries]
    intake.marked_late = any(words.late for _, words in handed_in.entries)
    choice = Choice()
    try:
        with contextlib.ExitStack() as stack:
            choice = choose(_members(handed_in, units, intake, stack), units)
    except RefusedError as error:
        intake.problem = str(error)
    except OSError as error:
        intake.problem = f"cannot be read: {error.strerror}"
    except Exception as error:  # an unexpected error affects one student, not the class
        intake.problem = f"the intake itself failed, {type(error).__name__}: {one_line(str(error))}"
    intake.files = [_record_of(one) for one in choice.taken]
    intake.left_out = choice.shown
    intake.left_out_more = len(choice.left_out) - len(intake.left_out)
    _date(intake, choice)
    _keep(choice, intake, run.student(handed_in.student))
    return intake


def _record_of(one: Taken) -> TakenFile:
    digest = hashlib.sha256(one.data).hexdigest()
    changed = _utc(one.modified) if one.modified else None
    found = one_line(one.found)
    return TakenFile(path=one.path, sha256=digest, bytes=len(one.data), found=found, changed=changed)


def _members(handed_in: HandedIn, units, intake: Intake, stack) -> Iterator[Member]:
    """Yield all members of a submission. Raises RefusedError if it cannot be read safely."""
    entries = handed_in.entries
    if not entries:
        return
    whole = [path.name for path, words in entries if not words.file]
    if len(whole) > 1 or (whole and len(entries) > 1):
        both = " and ".join(one_line(path.name) for path, _ in entries[:4])
        raise RefusedError(f"handed in more than once, as {both}: keep only one of them")
    for path, words in entries:
        mode = os.lstat(path).st_mode
        if stat.S_ISLNK(mode):
            raise RefusedError(f"{one_line(path.name)} is a link, not a submission")
        if stat.S_ISDIR(mode) and git_repositories.is_repository(path):
            intake.kind = "git"
            commit, members = stack.enter_context(git_repositories.opened(path))
            intake.commit, intake.handed_in = commit.name, _utc(commit.committed)
            intake.handed_in_by = "date of the commit"
            yield from members
        elif stat.S_ISDIR(mode):
            intake.kind = "folder"
            yield from _with_archives(path)
        elif stat.S_ISREG(mode) and path.suffix.lower() == ".zip":
            intake.kind = "zip" if len(entries) == 1 else "files"
            yield from in_zip(path)
        elif stat.S_ISREG(mode) and words.file:
            intake.kind = "files"
            yield _single(path, words.file, units)
        else:
            raise RefusedError(f"{one_line(path.name)} is neither a folder, a zip, nor a git repository")


def _with_archives(folder: Path) -> Iterator[Member]:
    """Yield the files of a folder and of the zip archives at its top level, as platforms save uploads."""
    for member in in_folder(folder):
        path = folder / member.path
        if "/" not in member.path and path.suffix.lower() == ".zip" and path.is_file():
            if path.is_symlink():
                raise RefusedError(f"{one_line(member.path)} is a link, not an archive")
            yield from in_zip(path, f"{member.path}/")
        else:
            yield member


def _single(path: Path, name: str, units: Sequence[Collected]) -> Member:
    """Return the member of a file that a platform renamed; Canvas adds -1 to a resubmitted name."""
    stem, dot, suffix = name.rpartition(".")
    first, dash, number = stem.rpartition("-")
    files = {file for unit in units for file in unit.files}
    called = f"{first}{dot}{suffix}" if dash and number.isdigit() else name
    member = next(one for one in in_folder(path.parent) if one.path == path.name)
    return replace(member, path=called if called in files else name, found=path.name)


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
