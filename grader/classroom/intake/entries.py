"""Sort the entries of a folder of submissions by student; nothing inside an entry is read."""

from __future__ import annotations

import hashlib
import stat
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from grader.classroom.intake import gradescope_export, repository_names
from grader.classroom.intake.contents import SKIPPED
from grader.classroom.intake.identity import Match
from grader.classroom.intake.roster import Roster
from grader.classroom.intake.student_ids import Key, Kind, Named, named, safe_id
from grader.classroom.intake.tar_archives import SUFFIXES as TARRED
from grader.system.text import one_line

ARCHIVES = (".zip", *TARRED, ".rar", ".7z", ".tar", ".gz", ".bz2", ".xz")


@dataclass(frozen=True)
class Entry:
    """One entry in the folder of submissions, and when the platform received it."""

    path: Path
    words: Named
    submitted: str | None = None  # ISO 8601, UTC


@dataclass
class HandedIn:
    """All entries of one student, or of somebody who is not on the roster."""

    student: str
    entries: list[Entry] = field(default_factory=list)
    could_be: tuple[str, ...] = ()  # students who the submission could belong to, where that is not certain
    doubtful: list[str] = field(default_factory=list)  # entries that could be this student's
    close: bool = False  # found by a name that is not spelled as in the roster
    partners: tuple[str, ...] = ()  # students who handed in the same entries


@dataclass
class Sorted:
    """The submissions by student id, the ids made up for unknown submitters, and files that are nobody's."""

    found: dict[str, HandedIn] = field(default_factory=dict)
    unknown: list[str] = field(default_factory=list)
    strays: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _Placed:
    entry: Entry
    match: Match


def by_student(submissions: Path, roster: Roster) -> Sorted:
    """Sort the entries of a folder of submissions. Raises ExportError for metadata that cannot be read."""
    folder = gradescope_export.folder_of(submissions)
    if folder != submissions and roster.match(named(folder.name, True).keys).students:
        folder = submissions  # the only submission, with a file of that name in it
    export = gradescope_export.read(folder)
    result, placed = Sorted(), []
    for path in sorted(folder.iterdir()):
        if path.name.startswith(".") or path.name in SKIPPED:
            continue
        words = named(path.name, path.is_dir() and not path.is_symlink())
        entry = Entry(path, words, export[path.name].submitted if path.name in export else None)
        match = _match(entry, export, roster)
        if match == Match() and _is_stray(path, words):
            result.strays.append(one_line(path.name))
        else:
            placed.append(_Placed(entry, match))
    for one in _only_exact(_one_user_each(_with_accounts(placed, roster))):
        _place(one, roster, result)
    _find_partners(result)
    return result


def _match(entry: Entry, export: Mapping[str, gradescope_export.Submitted], roster: Roster) -> Match:
    name = entry.path.name
    if name in export and export[name].submitters:
        return _of_submitters([roster.match(keys) for keys in export[name].submitters])
    match = roster.match(entry.words.keys)
    if match == Match() and not entry.words.file and entry.path.is_file():
        return roster.match((Key(entry.path.stem),))  # ada.rar, or ada.py: it cannot be read, but it is Ada's
    return match


def _of_submitters(found: list[Match]) -> Match:
    """Return the students of a submission on Gradescope, which knows their ids and e-mail addresses.

    A name alone is not enough there; and if one of a group is not on the roster, it may be a mistyped one.
    """
    everybody = tuple(sorted({who for one in found for who in (*one.students, *one.could_be)}))
    certain = all(one.students and one.exact for one in found)
    return Match(everybody, exact=True) if certain else Match(could_be=everybody)


def _is_stray(path: Path, words: Named) -> bool:
    """Whether an entry is a file that no student hands in as a whole, such as a roster or notes."""
    regular = stat.S_ISREG(path.lstat().st_mode)
    return regular and not words.file and bool(path.suffix) and not path.name.lower().endswith(ARCHIVES)


def _with_accounts(placed: list[_Placed], roster: Roster) -> list[_Placed]:
    """Find the students of repositories by their accounts, where nothing else has found them."""
    names = [one.entry.path.name for one in placed if one.match == Match() and one.entry.path.is_dir()]
    by_name = repository_names.by_account(names, roster.github) if roster.github else {}
    found = []
    for one in placed:
        accounts = by_name.get(one.entry.path.name) if one.match == Match() else None
        if accounts is None or not accounts.students:
            found.append(one)
        elif accounts.certain:
            found.append(_Placed(one.entry, Match(accounts.students, exact=True)))
        else:
            found.append(_Placed(one.entry, Match(could_be=accounts.students)))
    return found


def _one_user_each(placed: list[_Placed]) -> list[_Placed]:
    """Take from a student, found by name, the files of several users of Canvas: at most one is right."""
    users: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for one in placed:
        users[one.match.students] |= {key.text for key in one.entry.words.keys if key.kinds == (Kind.USER,)}
    return [
        _Placed(one.entry, Match(could_be=one.match.students))
        if not one.match.exact and len(users[one.match.students]) > 1
        else one
        for one in placed
    ]


def _only_exact(placed: list[_Placed]) -> list[_Placed]:
    """Take from a student what is named only nearly like one, where something else is named exactly so."""
    certain = {student for one in placed if one.match.exact for student in one.match.students}
    return [
        _Placed(one.entry, Match(could_be=one.match.students))
        if not one.match.exact and certain & set(one.match.students)
        else one
        for one in placed
    ]


def _place(one: _Placed, roster: Roster, result: Sorted) -> None:
    for student in one.match.students:
        handed_in = result.found.setdefault(student, HandedIn(student))
        handed_in.entries.append(one.entry)
        handed_in.close |= not one.match.exact and len(one.entry.words.keys) == 1
    for student in one.match.could_be:
        doubtful = result.found.setdefault(student, HandedIn(student)).doubtful
        doubtful.append(one_line(one.entry.path.name))
    if one.match.students:
        return
    ambiguous = {who for who, other in result.found.items() if other.could_be or one.match.could_be}
    student = _made_up(one, roster, ambiguous)
    if roster.students and student not in result.unknown:
        result.unknown.append(student)
    handed_in = result.found.setdefault(student, HandedIn(student))
    handed_in.entries.append(one.entry)
    handed_in.could_be = one.match.could_be


def _made_up(one: _Placed, roster: Roster, taken: Collection[str]) -> str:
    """Return an id for somebody who is not on the roster; never the id of somebody who is."""
    name = one.entry.path.name
    made = safe_id(name if one.match.could_be else one.entry.words.words)
    if made in roster.students or made in taken:
        made = f"unknown-{hashlib.sha256(name.encode('utf-8', 'surrogateescape')).hexdigest()[:12]}"
    return made


def _find_partners(result: Sorted) -> None:
    """Note who handed in exactly the same entries as others; each of them gets the grade."""
    together: dict[tuple[Path, ...], list[str]] = {}
    for student, handed_in in result.found.items():
        if handed_in.entries:
            together.setdefault(tuple(one.path for one in handed_in.entries), []).append(student)
    for students in together.values():
        for student in students:
            result.found[student].partners = tuple(other for other in students if other != student)
