"""Decide which student of the roster a submission belongs to: one for certain, or nobody."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from grader.classroom.intake.student_ids import Key, Kind, caseless, loosest, plain

# An equal text decides, kind by kind: an id goes before an e-mail address, and both before anything else. A
# text that is equal but for case comes next, then one without punctuation, if no other is nearly equal.
_EXACT = ((Kind.ID,), (Kind.EMAIL,), (Kind.USER, Kind.NUMBER, Kind.ACCOUNT, Kind.GROUP), (Kind.NAME,))
_LOOSE = (caseless, plain, loosest)


@dataclass(frozen=True)
class Names:
    """All texts that identify a student, by kind."""

    student: str
    texts: Mapping[Kind, frozenset[str]]


@dataclass(frozen=True)
class Match:
    """The students whom all keys mean: one, several that hand in together, or none.

    `could_be` are the students that the keys could mean where they do not mean one for certain.
    """

    students: tuple[str, ...] = ()
    exact: bool = False  # a text is equal as it is written
    could_be: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Found:
    students: frozenset[str]
    exact: bool = False
    group: bool = False


class Index:
    """What identifies the students of a roster."""

    def __init__(self, names: Iterable[Names] = ()):
        self._by_text: dict[tuple[Callable | None, Kind], dict[str, set[str]]] = defaultdict(
            lambda: defaultdict(set)
        )
        for one in names:
            for kind, texts in one.texts.items():
                for text in texts:
                    self._by_text[None, kind][text].add(one.student)
                    for spelled in _LOOSE:
                        self._by_text[spelled, kind][spelled(text)].add(one.student)

    def match(self, keys: tuple[Key, ...]) -> Match:
        """Return the student whom all keys mean.

        Keys that mean different students, and a key that means several who do not hand in together, name
        nobody: `could_be` has all of them.
        """
        found = [one for one in map(self._find, keys) if one.students]
        if not found:
            return Match()
        everybody = tuple(sorted(frozenset.union(*(one.students for one in found))))
        common = frozenset.intersection(*(one.students for one in found)) - self._others(keys)
        together = all(one.group for one in found)
        if not common or (len(common) > 1 and not together):
            return Match(could_be=everybody)
        return Match(tuple(sorted(common)), exact=any(one.exact for one in found))

    def _others(self, keys: tuple[Key, ...]) -> frozenset[str]:
        """Return the students who have a number of the platform, if a key is such a number and not theirs."""
        found: frozenset[str] = frozenset()
        for kind in (Kind.USER, Kind.NUMBER):
            numbers = self._by_text[None, kind]
            if any(key.kinds == (kind,) and key.text not in numbers for key in keys):
                found = found.union(*numbers.values())
        return found

    def _find(self, key: Key) -> _Found:
        """Return the students whom a key means by the first comparison that has a result."""
        for kinds in _EXACT:
            found = self._of(None, kinds, key)
            group = self._of(None, (Kind.GROUP,), key)
            if found and group and not group & found:
                return _Found(found | group)  # a group is named like somebody else's id
            if found:
                return _Found(found, exact=kinds != (Kind.NAME,), group=self._is_group(key, found))
        caseless_ones = self._of(caseless, tuple(Kind), key)
        if caseless_ones or not self._of(plain, tuple(Kind), key):
            return _Found(caseless_ones)
        # Equal to one but for punctuation, and perhaps only a little less equal to another.
        return _Found(self._of(loosest, tuple(Kind), key))

    def _of(self, spelled: Callable | None, kinds: tuple[Kind, ...], key: Key) -> frozenset[str]:
        text = spelled(key.text) if spelled else key.text
        if not text:
            return frozenset()
        asked = [kind for kind in kinds if kind in key.kinds and _fits(kind, spelled)]
        return frozenset().union(*(self._by_text[spelled, kind].get(text, ()) for kind in asked))

    def _is_group(self, key: Key, found: frozenset[str]) -> bool:
        return Kind.GROUP in key.kinds and found == self._by_text[None, Kind.GROUP].get(key.text)


def _fits(kind: Kind, spelled: Callable | None) -> bool:
    """Whether texts of a kind may be compared this way: a number of a platform is equal or it is another."""
    return kind not in (Kind.USER, Kind.NUMBER, Kind.GROUP) or spelled is None
