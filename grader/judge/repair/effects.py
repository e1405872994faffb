"""Edits that have the same effect in a case: one of them is enough to be tried.

Most edits replace an expression. In one run of the unedited file, all these other expressions are computed
beside its own. An edit whose expression gives the value that the file has, or an error, or the value of an
earlier edit, says nothing new of this case. Such edits are tried last, and not left out: of a loop only some
iterations are looked at.
"""

from __future__ import annotations

import ast
import bisect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from grader.judge.repair.edit import Edit
from grader.judge.repair.source import Function, Part, Source, called
from grader.worker.messages import EITHER, RAISES, SAME

# What changes memory, prints, or ends a program: it runs once, as the file has it.
ACTS = {
    "store", "store_tensor_descriptor", "atomic_add", "atomic_and", "atomic_cas", "atomic_max", "atomic_min",
    "atomic_or", "atomic_xchg", "atomic_xor", "debug_barrier", "print", "static_print", "device_print",
    "static_assert", "device_assert", "inline_asm_elementwise",
}  # fmt: skip
# What host code calls to compute numbers.
PLAIN = {"stride", "size", "numel", "dim", "cdiv", "next_power_of_2", "min", "max", "int", "float", "len"}
Span = tuple[int, int]


class Place(NamedTuple):
    """An expression of the file, with other texts for it by their number."""

    span: Span
    texts: dict[str, int]


class Effects:
    """The edits of a file, each as the expressions that it writes and their places."""

    def __init__(self, source: Source, edits: Sequence[Edit], before: Sequence[Part] = ()):
        """Edits come on top of the parts `before`."""
        self._source, self._edits, self._before = source, edits, before
        every = source.functions.values()
        spans = sorted(source.span(node) for one in every for node in _expressions(source, one))
        taken = [span for span, _ in before]
        self._places = [Place(span, {}) for span in spans if not any(_meet(span, one) for one in taken)]
        self._begins = [place.span[0] for place in self._places]
        self._of = [self._alternatives(edit) for edit in edits]

    def _alternatives(self, edit: Edit) -> list[tuple[int, int]] | None:
        """Return the places that an edit changes, with the number of its text; None if it changes more."""
        inside: dict[int, list[Part]] = {}
        for part in edit.parts:
            at = bisect.bisect_right(self._begins, part[0][0]) - 1
            if at < 0 or part[0][1] > self._places[at].span[1]:
                return None
            inside.setdefault(at, []).append(part)
        found = []
        for at, parts in inside.items():
            place = self._places[at]
            try:
                text = self._source.with_replaced(parts, within=place.span)
            except ValueError:  # its parts overlap
                return None
            if not _is_expression(text):
                return None
            found.append((at, place.texts.setdefault(text, len(place.texts))))
        return found

    def texts(self, count: int) -> list[str]:
        """Return files that together have all alternatives, each about as many."""
        shares = [[*self._before] for _ in range(count)]
        sizes = [0] * count
        for number, place in sorted(enumerate(self._places), key=lambda one: -len(one[1].texts)):
            if place.texts:
                least = sizes.index(min(sizes))
                sizes[least] += len(place.texts)
                others = "".join(f", lambda: ({text})" for text in place.texts)
                own = self._source.between(*place.span)
                shares[least].append((place.span, f"{EITHER}({number}, ({own}){others})"))
        return [self._source.with_replaced(share) for share in shares]

    def known(self, seen: Mapping[str, Sequence[int]]) -> Known:
        """Return the edits by what the runs have `seen` of them."""
        first, last, twins = list[Edit](), list[Edit](), dict[frozenset[tuple[int, int]], list[Edit]]()
        of: dict[tuple[Part, ...], list[Edit]] = {}
        for edit, places in zip(self._edits, self._of, strict=True):
            whole = len({text for _, text in edit.parts}) > 1
            does = None if places is None else _does(places, seen, whole)
            if does is None:
                first.append(edit)
                continue
            like = twins.setdefault(does, [])
            is_new = does and not like and not any(what == RAISES for _, what in does)
            (first if is_new else last).append(edit)
            like.append(edit)
            of[edit.parts] = like
        return Known([*first, *last], of)


@dataclass(frozen=True)
class Known:
    """Edits in the order in which to try them, and for each the edits with the same effect in one case."""

    edits: list[Edit]
    alike: Mapping[tuple[Part, ...], list[Edit]]  # by the parts of an edit, whose words may change

    def twins(self, found: Iterable[Edit]) -> list[Edit]:
        """Return the other edits that have the effect of one of these, each once."""
        given = [one.parts for one in found]
        others = {other.parts: other for parts in given for other in self.alike.get(parts, ())}
        return [other for parts, other in others.items() if parts not in given]


def _does(
    places: Iterable[tuple[int, int]], seen: Mapping[str, Sequence[int]], whole: bool = False
) -> frozenset[tuple[int, int]] | None:
    """Return what an edit changes; None if one of its places did not run.

    Of an edit that is only right as a `whole` a part may change nothing by itself.
    """
    found = set()
    for at, number in places:
        classes = seen.get(str(at), ())
        if number >= len(classes):
            return None
        if whole or classes[number] != SAME:
            found.add((at, classes[number]))
    return frozenset(found)


def _expressions(source: Source, function: Function) -> Iterator[ast.expr]:
    """Yield the largest expressions of a function that may be computed once more."""
    for statement in (one for part in function.node.body for one in ast.walk(part)):
        for value in _values(statement):
            yield from _computed(source, function, value)


def _values(statement: ast.AST) -> Iterator[ast.expr]:
    match statement:
        case ast.Assign(value=value) | ast.AugAssign(value=value):
            yield value
        case ast.AnnAssign(value=ast.expr() as value) | ast.Return(value=ast.expr() as value):
            yield value
        case ast.Expr(value=value) if not isinstance(value, ast.Constant):
            yield value
        case ast.If(test=test) | ast.While(test=test):
            yield test
        case ast.For(iter=ast.Call(args=given)):
            yield from given


def _computed(source: Source, function: Function, value: ast.expr) -> Iterator[ast.expr]:
    """Yield an expression, or the arguments of a call that acts."""
    inside = [*ast.walk(value)]
    if any(isinstance(one, ast.NamedExpr | ast.Lambda | ast.comprehension | ast.Starred) for one in inside):
        return
    if not any(_acts(source, one) if function.kernel else _is_not_plain(one) for one in inside):
        yield value
    elif isinstance(value, ast.Call):
        for one in (*value.args, *(keyword.value for keyword in value.keywords)):
            yield from _computed(source, function, one)


def _is_not_plain(node: ast.AST) -> bool:
    """Return whether host code may do more here than look at shapes and compute numbers of them."""
    return isinstance(node, ast.Call) and called(node) not in PLAIN


def _acts(source: Source, node: ast.AST) -> bool:
    name = called(node)
    if not name:
        return False
    inner = [one for function in source.reached_from(name) for one in ast.walk(function.node)]
    return not ACTS.isdisjoint((name, *map(called, inner)))


def _meet(one: Span, other: Span) -> bool:
    return one[0] < other[1] and other[0] < one[1]


def _is_expression(text: str) -> bool:
    try:
        node = ast.parse(f"({text})", mode="eval")
    except (SyntaxError, ValueError):
        return False
    return not any(isinstance(one, ast.NamedExpr | ast.Lambda | ast.comprehension) for one in ast.walk(node))
