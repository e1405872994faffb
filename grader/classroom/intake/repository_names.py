"""Find students by the names of their repositories: assignment, `-`, account, as GitHub Classroom does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Accounts:
    """The students whom a name could mean, and whether it is one for certain."""

    students: tuple[str, ...] = ()
    certain: bool = False


def by_account(entries: Iterable[str], accounts: Mapping[str, frozenset[str]]) -> dict[str, Accounts]:
    """Return the students whom each name could mean; `accounts` are in lower case.

    An account may contain `-` itself: `lab-1-ann` is assignment `lab-1` of `ann`, or `lab` of `1-ann`. The
    assignment that explains most names decides; if two explain equally many, the name means both students.
    """
    splits = {entry: _splits(entry, accounts) for entry in entries}
    votes = Counter(assignment for found in splits.values() for assignment in found)
    chosen = {}
    for entry, found in splits.items():
        most = max((votes[assignment] for assignment in found), default=0)
        best = {assignment for assignment in found if votes[assignment] == most}
        # softmax-wei-li beside softmax-li and softmax-zoe: wei-li may have no account in the roster.
        longer = {a for a in best for other in votes if votes[other] > votes[a] and a.startswith(f"{other}-")}
        students = frozenset().union(*(found[assignment] for assignment in best))
        chosen[entry] = Accounts(tuple(sorted(students)), certain=len(students) == 1 and not longer)
    return chosen


def _splits(entry: str, accounts: Mapping[str, frozenset[str]]) -> dict[str, frozenset[str]]:
    """Return the students for each assignment that the name could begin with."""
    name = entry.lower()
    cuts = [at for at, char in enumerate(name) if char == "-" and at]
    return {name[:at]: accounts[name[at + 1 :]] for at in cuts if name[at + 1 :] in accounts}
