"""Edits that have the same effect in a case: one of them is enough to be tried.

Most edits replace an expression. In one run of the unedited file, all these other expressions are computed
beside its own. An edit whose expression gives the value that the file has, or an error, or the value of an
earlier edit, says nothing new of this case. Such edits are tried last, and not left out: of a loop only some
iterations are looked at.
"""

from __future__ import annotations

import ast
import bisect
import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from grader.judge.repair.edit import Edit
from grader.judge.repair.source import Function, Part, Source, called
from grader.worker.messages import CHOSEN, EITHER, RAISES, SAME

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
        # Of places, in the text with all alternatives, so that each k-th place has about a k-th of them.
        many = [at for at, place in enumerate(self._places) if place.texts]
        many.sort(key=lambda at: -len(self._places[at].texts))
        self._numbers = {at: number for number, at in enumerate(many)}

    def _alternatives(self, edit: Edit) -> list[tuple[int, int]] | None:
        """Return the places that an edit changes, with the number, from 0, of its text; None if more."""
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

    @cached_property
    def text(self) -> str:
        """The file with all alternatives."""
        parts = [*self._before]
        for at, number in self._numbers.items():
            place = self._places[at]
            every = [self._source.between(*place.span), *place.texts]
            chosen = f"lambda {CHOSEN}: {_one_of(every, 0, len(every))}"
            parts.append((place.span, f"{EITHER}({number}, {len(every)}, {chosen})"))
        return self._source.with_replaced(parts)

    def known(self, seen: Mapping[str, Sequence[int]], others: Sequence[Edit] = ()) -> Known:
        """Return the edits by what the runs have `seen` of them; `others` come before those that say nothing
        new.
        """
        first, last, twins = list[Edit](), list[Edit](), dict[frozenset[tuple[int, int]], list[Edit]]()
        of: dict[tuple[Part, ...], list[Edit]] = {}
        selected: dict[tuple[Part, ...], Mapping[str, int]] = {}
        for edit, places in zip(self._edits, self._of, strict=True):
            whole = len({text for _, text in edit.parts}) > 1
            numbered = None if places is None else [(self._numbers[at], text) for at, text in places]
            does = None if numbered is None else _does(numbered, seen, whole)
            if numbered and seen:  # else the text with all alternatives does not run
                selected[edit.parts] = {str(at): number + 1 for at, number in numbered}  # 0 is its own
            if does is None:
                first.append(edit)
                continue
            like = twins.setdefault(does, [])
            is_new = does and not like and not any(what == RAISES for _, what in does)
            if like and like[0].is_of_several and not edit.is_of_several and like[0] in first:
                first[first.index(like[0])] = edit  # one place is enough for the same effect
                last.append(like[0])
            else:
                (first if is_new else last).append(edit)
            like.insert(0 if like and like[0].is_of_several else len(like), edit)
            of[edit.parts] = like
        return Known([*first, *others, *last], of, selected, tuple(self._before))


@dataclass(frozen=True)
class Known:
    """Edits in the order in which to try them, and for each the edits with the same effect in one case.

    On top of the parts `before`; `selected` says what most edits are in the text with all alternatives, by
    the numbers of places.
    """

    edits: list[Edit]
    alike: Mapping[tuple[Part, ...], list[Edit]]  # by the parts of an edit, whose words may change
    selected: Mapping[tuple[Part, ...], Mapping[str, int]]  # as well
    before: tuple[Part, ...]

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
    """Yield an expression, or the arguments of a call that acts, and the grid of a launch."""
    if isinstance(value, ast.Lambda) and not function.kernel:
        yield from _computed(source, function, value.body)
        return
    inside = [*ast.walk(value)]
    if not any(_acts(source, one) if function.kernel else _is_not_plain(one) for one in inside):
        binding = ast.NamedExpr | ast.Lambda | ast.comprehension | ast.Starred
        if not any(isinstance(one, binding) for one in inside):
            yield value
    elif isinstance(value, ast.Call):
        grid = [value.func.slice] if isinstance(value.func, ast.Subscript) and not function.kernel else []
        for one in (*grid, *value.args, *(keyword.value for keyword in value.keywords)):
            yield from _computed(source, function, one)
    elif isinstance(value, ast.Tuple) and not function.kernel:
        for one in value.elts:
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


def _one_of(texts: Sequence[str], first: int, last: int) -> str:
    """Return an expression for the one of these texts with the number that is chosen, found by halving."""
    if last - first == 1:
        return f"({texts[first]})"
    middle = (first + last) // 2
    return f"({_one_of(texts, first, middle)} if {CHOSEN} < {middle} else {_one_of(texts, middle, last)})"


def _meet(one: Span, other: Span) -> bool:
    return one[0] < other[1] and other[0] < one[1]


@functools.lru_cache(maxsize=1 << 14)
def _is_expression(text: str) -> bool:
    try:
        node = ast.parse(f"({text})", mode="eval")
    except (SyntaxError, ValueError):
        return False
    if isinstance(node.body, ast.Tuple) and not text.startswith("("):
        return False  # several arguments in place of one
    return not any(isinstance(one, ast.NamedExpr | ast.Lambda | ast.comprehension) for one in ast.walk(node))
