"""Choose the files to collect from a submission, by deterministic rules."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from grader.classroom.intake.contents import Kind, Member, UnreadableError, bad_name, skipped
from grader.classroom.intake.expected_files import Collected
from grader.classroom.intake.student_ids import plain
from grader.classroom.records import LeftOut
from grader.system.text import one_line

MOST_TAKEN = 32 << 20  # bytes of all collected files of one student
MOST_FILES = 1500  # a kernel log has several files per step
SHOWN = 60  # files left out that a record lists


@dataclass(frozen=True)
class Taken:
    """A file that will be graded: path relative to files/, path in the submission, bytes."""

    path: str
    found: str
    data: bytes
    modified: float | None


@dataclass
class Choice:
    """The files taken from a submission, and those left out."""

    taken: list[Taken] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)

    @property
    def shown(self) -> list[LeftOut]:
        """The files left out that the record lists: first those that a unit asks for."""
        return sorted(self.left_out, key=lambda one: not one.unit)[:SHOWN]


def choose(members: Iterable[Member], units: Sequence[Collected]) -> Choice:
    """Choose the collected files of a submission.

    A path that ends as in the course, `lab2_online_softmax/online_softmax.py`, comes first. For a lab, a file
    of that name in any folder comes second. Of several candidates the one in the fewest folders is taken. If
    two are equally deep and differ, both are left out and named.
    """
    choice = Choice()
    offers: dict[str, list[tuple[tuple[int, int], Member]]] = {}
    for member in members:
        if skipped(member.path):
            continue
        target, rank = _target(member.path, units)
        why = _unfit(member)
        if why:
            unit = target or _similar(member.path, units)
            choice.left_out.append(_left(member, why, unit.partition("/")[0]))
        elif not target:
            similar = _similar(member.path, units)
            why = f"its name is similar to {similar}, but not the same" if similar else "not a collected file"
            choice.left_out.append(_left(member, why, similar.partition("/")[0]))
        else:
            offers.setdefault(target, []).append(((rank, member.path.count("/")), member))
    _select(offers, choice)
    return choice


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
    return "", 0


def _similar(path: str, units: Sequence[Collected]) -> str:
    """Return the collected file whose name equals this one but for case, punctuation or letter variants."""
    stem = plain(path.split("/")[-1])
    for unit in units:
        for file in unit.files:
            if plain(file.split("/")[-1]) == stem:
                return f"{unit.unit.name}/{file}"
    return ""


def _unfit(member: Member) -> str:
    wrong = bad_name(member.path)
    if wrong:
        return wrong
    if member.kind is not Kind.FILE:
        return f"it is {member.kind.value}" + (", not a file" if member.kind is Kind.LINK else "")
    return ""


def _left(member: Member, why: str, unit: str = "") -> LeftOut:
    return LeftOut(found=one_line(member.place), why=why, unit=unit)


def _select(offers: dict[str, list[tuple[tuple[int, int], Member]]], choice: Choice) -> None:
    total = 0
    for target, offered in sorted(offers.items()):
        unit = target.partition("/")[0]
        best = min(place for place, _ in offered)
        nearest = sorted((m for place, m in offered if place == best), key=lambda m: m.place)
        choice.left_out += [
            _left(m, f"{one_line(nearest[0].place)} was taken") for place, m in offered if place != best
        ]
        try:
            found = [(member, member.read()) for member in nearest]
        except UnreadableError as error:
            choice.left_out += [_left(member, str(error), unit) for member in nearest]
            continue
        if len({data for _, data in found}) > 1:
            both = " and ".join(one_line(member.place) for member in nearest)
            choice.left_out += [
                _left(m, f"two files of one name, {both}: hand in one of them", unit) for m in nearest
            ]
            continue
        member, data = found[0]
        total += len(data)
        if total > MOST_TAKEN or len(choice.taken) >= MOST_FILES:
            choice.left_out.append(_left(member, "the limit for files or bytes was reached before it", unit))
            continue
        choice.taken.append(Taken(target, member.place, data, member.modified or member.dated()))
