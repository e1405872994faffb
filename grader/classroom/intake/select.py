"""Choose the files to collect from a submission, by deterministic rules."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from grader.classroom.intake.contents import MOST_DEPTH, Kind, Member, UnreadableError, bad_name, skipped
from grader.classroom.intake.course_files import is_course_file
from grader.classroom.intake.expected_files import Collected
from grader.classroom.intake.student_ids import original, plain
from grader.classroom.records import LeftOut
from grader.system.text import one_line

MOST_TAKEN = 32 << 20  # bytes of all collected files of one student
MOST_FILES = 1500  # a kernel log has several files per step
SHOWN = 60  # files left out that a record lists
NOT_EXPECTED = "not a collected file"
MOST_EQUAL = 20  # equally near candidates for one file; each is read
COPY = 3  # rank of a file whose name says that it is a copy: "online_softmax (1).py"
# A file of these kinds may be an answer, wherever it is.
ANSWERS = (".py", ".ipynb", ".cu", ".cuh", ".zip", ".gz", ".tgz", ".tar", ".rar", ".7z", ".py.txt")


@dataclass(frozen=True)
class Taken:
    """A file that will be graded: path relative to files/, path in the submission, bytes."""

    path: str
    found: str
    data: bytes
    modified: float | None

    @property
    def unit(self) -> str:
        """The folder of the lab, or of the capstone."""
        return self.path.partition("/")[0]


@dataclass(frozen=True)
class _Offer:
    """A member that could be collected as a file: its rank, 0 the best, and its depth."""

    rank: int
    member: Member

    @property
    def order(self) -> tuple[int, int]:
        """Best first. All copies are equal, wherever they are: no rule says which one is meant."""
        return (self.rank, 0 if self.rank == COPY else self.member.path.count("/"))

    @property
    def folder(self) -> str:
        return self.member.path.rpartition("/")[0]


@dataclass
class Choice:
    """The files taken from a submission, and those left out."""

    taken: list[Taken] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)

    @property
    def shown(self) -> list[LeftOut]:
        """The files left out that the record lists: first those that a person should look at."""
        return sorted(self.left_out, key=lambda one: (not one.look, not one.unit))[:SHOWN]


def choose(members: Iterable[Member], units: Sequence[Collected]) -> Choice:
    """Choose the collected files of a submission.

    A path that ends as in the course, `lab2_online_softmax/online_softmax.py`, comes first. For a lab, a file
    of that name in any folder comes second, and a copy of it, `online_softmax (1).py`, third. Of several
    candidates the one in the fewest folders is taken. If two are equally near and differ, both are left out
    and named. What is left out and may be an answer is marked for a person to look at.
    """
    choice = Choice()
    offers: dict[str, list[_Offer]] = {}
    others: list[Member] = []
    for member in members:
        if skipped(member.path):
            continue
        why = _unfit(member)
        # A path that is too long is not compared with anything: that would take long as well.
        target, rank = _target(member.path, units) if member.path.count("/") < MOST_DEPTH else ("", 0)
        if why:
            unit = target or _similar(member.path, units)
            choice.left_out.append(_left(member, why, unit.partition("/")[0]))
        elif target:
            offers.setdefault(target, []).append(_Offer(rank, member))
        elif similar := _similar(member.path, units):
            why = f"its name is similar to {similar}, but not the same"
            choice.left_out.append(_left(member, why, similar.partition("/")[0]))
        else:
            others.append(member)
    _select(offers, choice)
    _look_at(others, choice, units)
    return choice


def _folder_unit(path: str, units: Sequence[Collected]) -> str:
    """Return the unit whose folder a file is in, or an empty string."""
    parts = path.split("/")[:-1]
    return next((unit.unit.name for unit in units if unit.unit.name in parts), "")


def _look_at(others: Iterable[Member], choice: Choice, units: Sequence[Collected]) -> None:
    """Mark what may be the answer to a file that was not handed in under its name."""
    missing = _incomplete(choice, units)
    started = {taken.unit for taken in choice.taken}
    begun = sorted(missing & started)
    for member in others:
        unit = _folder_unit(member.path, units)
        asked = unit in missing if unit else bool(missing)
        could_be_answer = member.path.lower().endswith(ANSWERS) or not started
        look = asked and could_be_answer and not is_course_file(member.path)
        at = unit or (begun[0] if len(begun) == 1 else "")
        choice.left_out.append(
            LeftOut(found=one_line(member.place), why=NOT_EXPECTED, unit=at if look else "", look=look)
        )


def _incomplete(choice: Choice, units: Sequence[Collected]) -> set[str]:
    """Return the units of which at least one file was not taken."""
    taken = {one.path for one in choice.taken}
    return {
        unit.unit.name
        for unit in units
        if any(f"{unit.unit.name}/{file}" not in taken for file in unit.files)
    }


def _target(path: str, units: Sequence[Collected]) -> tuple[str, int]:
    """Return a file's path relative to files/ ("" if it is not collected) and its rank, 0 the best."""
    parts = path.split("/")
    for unit in units:
        name = unit.unit.name
        for at in range(len(parts)):
            if parts[at] == name and unit.fits("/".join(parts[at + 1 :])):
                return f"{name}/{'/'.join(parts[at + 1 :])}", 0
    for unit in units:
        if unit.patterns:  # the capstone's folder was submitted under another name
            for at in range(len(parts)):
                below = "/".join(parts[at:])
                if unit.fits(below) and ("/" in below or below in unit.files):
                    return f"{unit.unit.name}/{below}", 1
        elif parts[-1] in unit.files:
            return f"{unit.unit.name}/{parts[-1]}", 2
    for unit in units:
        if original(parts[-1]) in unit.files:
            return f"{unit.unit.name}/{original(parts[-1])}", COPY
    return "", 0


def _similar(path: str, units: Sequence[Collected]) -> str:
    """Return the collected file whose name equals this one but for case, punctuation or letter variants."""
    stem = _letters(path.split("/")[-1])
    for unit in units:
        for file in unit.files:
            if _letters(file.split("/")[-1]) == stem:
                return f"{unit.unit.name}/{file}"
    return ""


def _letters(name: str) -> str:
    """Return a name without case and punctuation, with one letter for those that look alike."""
    return plain(unicodedata.normalize("NFKC", name))


def _unfit(member: Member) -> str:
    wrong = bad_name(member.path)
    if wrong:
        return wrong
    if member.kind is not Kind.FILE:
        return f"it is {member.kind.value}" + (", not a file" if member.kind is Kind.LINK else "")
    return ""


def _left(member: Member, why: str, unit: str = "") -> LeftOut:
    return LeftOut(found=one_line(member.place), why=why, unit=unit, look=bool(unit))


def _is_inside(target: str, taken: Iterable[Taken]) -> bool:
    """Whether a path needs a folder where a file was taken, or is where a folder is."""
    return any(one.path.startswith(f"{target}/") or target.startswith(f"{one.path}/") for one in taken)


def _select(offers: dict[str, list[_Offer]], choice: Choice) -> None:
    total = 0
    for target, offered in sorted(offers.items()):
        unit = target.partition("/")[0]
        best = min(one.order for one in offered)
        nearest = sorted((one for one in offered if one.order == best), key=lambda one: one.member.place)
        folders = {one.folder for one in nearest}
        # A copy beside the file itself is as near as the file.
        nearest += [one for one in offered if one.rank == COPY != best[0] and one.folder in folders]
        members = [one.member for one in nearest]
        if len(members) > MOST_EQUAL or _is_inside(target, choice.taken):
            why = f"{len(members)} files could be {target}, or another file is where its folder would be"
            choice.left_out += [_left(member, why, unit) for member in members[:SHOWN]]
            continue
        try:
            found = [(member, member.read()) for member in members]
        except UnreadableError as error:
            choice.left_out += [_left(member, str(error), unit) for member in members]
            continue
        if len({data for _, data in found}) > 1:
            both = " and ".join(one_line(member.place) for member in members[:4])
            why = f"two files of one name, {both}: hand in one of them"
            choice.left_out += [_left(member, why, unit) for member in members]
            continue
        member, data = found[0]
        choice.left_out += [
            _left(one.member, f"{one_line(member.place)} was taken") for one in offered if one not in nearest
        ]
        total += len(data)
        if total > MOST_TAKEN or len(choice.taken) >= MOST_FILES:
            choice.left_out.append(_left(member, "the limit for files or bytes was reached before it", unit))
            continue
        choice.taken.append(Taken(target, member.place, data, member.modified or member.dated()))
