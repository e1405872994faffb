"""Read each attempt of a student, and choose for each lab which attempt counts."""

from __future__ import annotations

import contextlib
import datetime
import enum
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from grader.classroom.intake import git_repositories, tar_archives
from grader.classroom.intake.contents import Member, RefusedError, in_folder
from grader.classroom.intake.entries import Entry
from grader.classroom.intake.expected_files import Collected
from grader.classroom.intake.select import Choice, Taken, choose
from grader.classroom.intake.zip_archives import in_zip
from grader.classroom.records import LeftOut
from grader.system.text import one_line

UNCERTAIN_S = 14 * 3600.0  # the largest offset of a time zone from UTC
Shape = Literal["nothing", "folder", "zip", "tar", "git", "files"]


class Policy(str, enum.Enum):
    """Which attempt counts for a lab that was handed in several times with different files."""

    LAST = "last"
    BEST = "best"  # each is graded, in turn
    REFUSE = "refuse"


@dataclass
class Attempt:
    """What one attempt holds: a whole entry, or all files that a platform saved one by one."""

    name: str
    kind: Shape = "nothing"
    commit: str | None = None
    submitted: float | None = None  # seconds since 1970, by the platform or by the commit
    by: str = ""  # the source of that time
    choice: Choice = field(default_factory=Choice)
    problem: str = ""

    def moment(self, files: Iterable[Taken]) -> float | None:
        """Return when the attempt was handed in: by the platform, else the newest date of these files."""
        dates = [file.modified for file in files if file.modified]
        return self.submitted if self.submitted is not None else max(dates, default=None)


def read(entries: Sequence[Entry], units: Sequence[Collected]) -> list[Attempt]:
    """Read the attempts of a student; an attempt that cannot be read has a problem."""
    return [_read(group, units) for group in _grouped(entries)]


def _grouped(entries: Sequence[Entry]) -> list[list[Entry]]:
    """Return the entries of each attempt: files that a platform saved one by one are one attempt."""
    single = [one for one in entries if one.words.file and not _is_archive(one)]
    return [*([single] if single else []), *([one] for one in entries if one not in single)]


def turns(handed_in: Iterable[Sequence[Entry]], policy: Policy) -> list[int | None]:
    """Return the turns of a class: one for each attempt if the best counts, else one, `None`."""
    if policy is not Policy.BEST:
        return [None]
    most = max((len(_grouped(one)) for one in handed_in), default=1)
    return [*range(most - 1), None]


def _is_archive(entry: Entry) -> bool:
    return entry.path.name.lower().endswith((".zip", *tar_archives.SUFFIXES))


def _read(entries: Sequence[Entry], units: Sequence[Collected]) -> Attempt:
    attempt = Attempt(name=" and ".join(one_line(one.path.name) for one in entries[:4]))
    times = [moment for one in entries if (moment := _seconds(one.submitted)) is not None]
    try:
        with contextlib.ExitStack() as stack:
            members = (member for one in entries for member in _members(one, attempt, stack))
            attempt.choice = choose(members, units)
    except RefusedError as error:
        attempt.problem = str(error)
    except OSError as error:
        attempt.problem = f"cannot be read: {error.strerror}"
    except Exception as error:  # an unexpected error affects one student, not the class
        attempt.problem = f"the intake itself failed, {type(error).__name__}: {one_line(str(error))}"
    if times:
        attempt.submitted, attempt.by = max(times), "Gradescope"
        dated = [replace(taken, modified=attempt.submitted) for taken in attempt.choice.taken]
        attempt.choice.taken = dated
    return attempt


def _seconds(text: str | None) -> float | None:
    return datetime.datetime.fromisoformat(text).timestamp() if text else None


def _members(entry: Entry, attempt: Attempt, stack: contextlib.ExitStack) -> Iterator[Member]:
    """Yield all members of an entry. Raises RefusedError if it cannot be read safely."""
    path, name = entry.path, one_line(entry.path.name)
    mode = os.lstat(path).st_mode
    if stat.S_ISLNK(mode):
        raise RefusedError(f"{name} is a link, not a submission")
    if stat.S_ISDIR(mode) and git_repositories.is_repository(path):
        attempt.kind = "git"
        commit, members = stack.enter_context(git_repositories.opened(path))
        attempt.commit, attempt.submitted, attempt.by = commit.name, commit.committed, "date of the commit"
        yield from members
    elif stat.S_ISDIR(mode):
        attempt.kind = "folder"
        yield from _with_archives(entry, stack)
    elif stat.S_ISREG(mode) and path.suffix.lower() == ".zip":
        attempt.kind = "zip"
        yield from in_zip(path)
    elif stat.S_ISREG(mode) and _is_archive(entry):
        attempt.kind = "tar"
        yield from stack.enter_context(tar_archives.opened(path))
    elif stat.S_ISREG(mode) and entry.words.file:
        attempt.kind = "files"
        yield _single(entry)
    else:
        raise RefusedError(f"{name} is neither a folder, a zip, a .tar.gz, nor a git repository")


def _with_archives(entry: Entry, stack: contextlib.ExitStack) -> Iterator[Member]:
    """Yield the files of a folder and of the archives at its top level, as platforms save uploads."""
    folder = entry.path
    for member in in_folder(folder):
        path = folder / member.path
        lower = member.path.lower()
        if "/" in member.path or not lower.endswith((".zip", *tar_archives.SUFFIXES)) or not path.is_file():
            yield member
            continue
        if path.is_symlink():
            raise RefusedError(f"{one_line(member.path)} is a link, not an archive")
        if lower.endswith(".zip"):
            yield from in_zip(path, f"{member.path}/")
        else:
            yield from stack.enter_context(tar_archives.opened(path, f"{member.path}/"))


def _single(entry: Entry) -> Member:
    """Return the member of a file that a platform renamed."""
    path = entry.path
    shown = os.fsencode(path.name).decode("utf-8", "replace")
    member = next((one for one in in_folder(path.parent) if one.path == shown), None)
    if member is None:
        raise RefusedError(f"{one_line(path.name)} cannot be found again")
    return replace(member, path=entry.words.file, found=path.name)


def together(attempts: Sequence[Attempt], policy: Policy, turn: int | None = None) -> Choice:
    """Return the files that count: for each lab, those of one attempt.

    Attempts with different labs, or with the same files, complement each other. Of attempts with different
    files the one that was handed in last counts. If no time says which one that is, or the policy refuses a
    second attempt, none counts, and both are named. If the best counts, each is graded: `turn` says which one
    now, None the last.
    """
    choice = Choice()
    for attempt in attempts:
        choice.left_out += attempt.choice.left_out
        if attempt.problem and len(attempts) > 1:
            choice.left_out.append(LeftOut(found=attempt.name, why=attempt.problem, look=True))
    units = sorted({taken.unit for attempt in attempts for taken in attempt.choice.taken})
    for unit in units:
        having = [(attempt, _files_of(attempt, unit)) for attempt in attempts if _files_of(attempt, unit)]
        counts, why = _in_turn(having, turn) if policy is Policy.BEST else _counting(having, policy)
        choice.taken += counts
        kept = {id(taken) for taken in counts}
        for attempt, files in having:
            if files and id(files[0]) not in kept and not _same(files, counts):
                undecided = not counts and policy is Policy.LAST
                choice.left_out.append(
                    LeftOut(found=attempt.name, why=why, unit=unit, look=True, undecided=undecided)
                )
    return choice


def _files_of(attempt: Attempt, unit: str) -> list[Taken]:
    return [taken for taken in attempt.choice.taken if taken.unit == unit]


def _same(one: Sequence[Taken], other: Sequence[Taken]) -> bool:
    return {(file.path, file.data) for file in one} == {(file.path, file.data) for file in other}


def _counting(having: list[tuple[Attempt, list[Taken]]], policy: Policy) -> tuple[list[Taken], str]:
    """Return the files of a lab that count, and why the others do not."""
    files = [of for _, of in having]
    if all(_same(of, files[0]) for of in files):
        return files[0], ""
    names = " and ".join(attempt.name for attempt, _ in having[:4])
    words = f"handed in more than once, as {names}"
    if policy is Policy.REFUSE:
        return [], f"{words}: keep only one of them"
    last = _last(having)
    if last is None:
        return [], f"{words}, and no time says which is the last: keep only one of them"
    return last, f"{words}: the last one counts"


def _in_turn(having: list[tuple[Attempt, list[Taken]]], turn: int | None) -> tuple[list[Taken], str]:
    """Return the files of one attempt, in the order of their times as far as they are known."""
    ordered = sorted(having, key=lambda one: (one[0].moment(one[1]) or 0.0, one[0].name))
    last = len(ordered) - 1
    names = " and ".join(attempt.name for attempt, _ in having[:4])
    words = f"handed in more than once, as {names}: the best one counts"
    return ordered[last if turn is None else min(turn, last)][1], words


def _last(having: list[tuple[Attempt, list[Taken]]]) -> list[Taken] | None:
    """Return the files of the attempt that was handed in last; None if that is not certain."""
    moments = [attempt.moment(of) for attempt, of in having]
    if None in moments:
        return None
    last = max(range(len(having)), key=lambda k: moments[k])
    attempt, files = having[last]
    for k, (other, of) in enumerate(having):
        # A zip has the student's local time without a time zone.
        apart = 0.0 if other.kind == attempt.kind else UNCERTAIN_S
        if k != last and moments[last] - moments[k] <= apart and not _same(of, files):
            return None
    return files
