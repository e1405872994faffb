"""Edits near to what was seen to be wrong come first: an address outside of a tensor, a missing store.

Of an access that is wrong by its address the mistake is in what that address, or its mask, is made of: the
backward slice of the line (Weiser, Program Slicing, 1981). The nearer a statement is, the earlier its edits.
What a right output is made of comes last.
"""

from __future__ import annotations

import ast
import bisect
from collections import deque
from collections.abc import Collection, Iterator, Sequence

from grader.judge.repair.edit import Edit
from grader.judge.repair.launched import kernel_of
from grader.judge.repair.source import Function, Source, called, names_in

# An edit of a statement this near is tried as if it stood so much earlier. The rest is not left out: another
# mistake may have led there.
EARLIER = (8.0, 8.0, 4.0, 4.0, 4.0, 4.0, 4.0, 4.0)
# So much earlier, for edits of the shapes of blocks: where these do not go together, and just before.
FIRST = (256.0, 64.0)
OF_SHAPES = ("along an axis", "wrong axis", "all axes")
OF_DIGITS = ("digits", "keeps sums in", "in the dtype of its operand", "is not converted to fp32")
LATER = 8.0  # so much, for statements of which a right output is made
Place = tuple[str, str]  # a function and a name in it


def by_evidence(
    source: Source,
    edits: Sequence[Edit],
    wrong: Collection[int],
    settled: Collection[int],
    errors: Collection[int] = (),
) -> list[Edit]:
    """Return edits in the order in which to try them.

    Accesses in the lines `wrong` were seen to be wrong. Stores in lines that are `settled` are right. In the
    lines `errors` the file fails, because blocks do not go together.
    """
    near = _nearness(source, {*wrong, *errors})
    right = _behind(source, settled)
    if not near and not right:
        return [*edits]
    begins = sorted(near)

    def place(at: int) -> float:
        distances = []
        for (begin, _), _ in edits[at].parts:
            number = bisect.bisect_right(begins, begin) - 1
            inside = number >= 0 and begin < near[begins[number]][0]
            distances.append(near[begins[number]][1] if inside else len(EARLIER))
        # Of an edit of several places the farthest counts: elsewhere it changes what is right.
        farthest = max(distances)
        if errors and farthest < len(FIRST) and any(words in edits[at].kind for words in OF_SHAPES):
            return at / FIRST[farthest]
        if farthest < len(EARLIER):
            return at / EARLIER[farthest]
        return at * LATER if all(_is_in(right, begin) for (begin, _), _ in edits[at].parts) else at

    return [edits[at] for at in sorted(range(len(edits)), key=place)]


def of_digits_first(edits: Sequence[Edit]) -> list[Edit]:
    """Return edits with those of conversions and of the dtypes of sums first, each as it comes.

    Where digits alone are lost, another edit that helps goes around the place where they are.
    """
    return sorted(edits, key=lambda one: not any(words in one.kind for words in OF_DIGITS))


def _nearness(source: Source, lines: Collection[int]) -> dict[int, tuple[int, int]]:
    """Return where each near statement begins, with where it ends and its distance."""
    found: dict[int, tuple[int, int]] = {}
    asked: deque[tuple[Place, int]] = deque()
    seen: set[Place] = set()

    def take(function: Function, node: ast.AST, names: Iterator[ast.Name], distance: int) -> None:
        begin, end = source.span(node)
        found.setdefault(begin, (end, distance))
        for name in names:
            place = function.name, name.id
            if place not in seen:
                seen.add(place)
                asked.append((place, distance + 1))

    for function in source.functions.values():
        for node in ast.walk(function.node):
            if isinstance(node, ast.stmt) and _is_simple(node) and _spans(node, lines):
                take(function, node, _of_addresses(node), 0)
    while asked:
        (name, wanted), distance = asked.popleft()
        if distance >= len(EARLIER):
            continue
        function = source.functions[name]
        for node in ast.walk(function.node):
            value = _bound(node, wanted)
            if value is not None:
                take(function, node if _is_simple(node) else value, names_in(value), distance)
                for callee, result in _returned(source, value):
                    take(callee, result, names_in(result), distance)
        if wanted in function.parameters:
            for caller, argument in _handed(source, function, wanted):
                take(caller, argument, names_in(argument), distance)
    return found


def _behind(source: Source, lines: Collection[int]) -> list[tuple[int, int]]:
    """Return the spans of the statements of which what is stored in these lines is made, with their loops."""
    found: dict[int, int] = {}
    asked: deque[Place] = deque()
    seen: set[Place] = set()

    def take(function: Function, node: ast.AST) -> None:
        begin, end = source.span(node)
        found[begin] = max(end, found.get(begin, end))
        for name in names_in(node):
            if name.id in source.functions and source.functions[name.id].kernel:
                begin, end = source.span(source.functions[name.id].node)
                found[begin] = end
            place = function.name, name.id
            if place not in seen:
                seen.add(place)
                asked.append(place)

    kernels = [one for one in source.functions.values() if one.kernel]
    for function in kernels:
        for node in ast.walk(function.node):
            if isinstance(node, ast.stmt) and _is_simple(node) and _spans(node, lines):
                take(function, node)
    while asked:
        name, wanted = asked.popleft()
        for node in ast.walk(source.functions[name].node):
            value = _bound(node, wanted)
            if value is not None:
                take(source.functions[name], node if _is_simple(node) else value)
    return [*found.items()]


def _is_in(spans: Sequence[tuple[int, int]], at: int) -> bool:
    return any(begin <= at < end for begin, end in spans)


def _is_simple(node: ast.AST) -> bool:
    return isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign | ast.Expr | ast.Return)


def _spans(node: ast.stmt, lines: Collection[int]) -> bool:
    return any(node.lineno <= line <= (node.end_lineno or node.lineno) for line in lines)


def _of_addresses(node: ast.stmt) -> Iterator[ast.Name]:
    """Yield the names of which addresses and masks are made: all but those of the value that is stored."""
    stored: set[ast.AST] = set()
    for call in ast.walk(node):
        if called(call) in ("store", "atomic_add") and isinstance(call, ast.Call) and len(call.args) > 1:
            stored |= {*ast.walk(call.args[1])}
    return (one for one in names_in(node) if isinstance(one.ctx, ast.Load) and one not in stored)


def _bound(node: ast.AST, name: str) -> ast.expr | None:
    """Return the value that a statement binds a name to, or what a loop over it runs through."""
    match node:
        case ast.Assign(targets=targets, value=value):
            bound = {one.id for target in targets for one in names_in(target)}
            return value if name in bound else None
        case ast.AugAssign(ast.Name(target), _, value) | ast.AnnAssign(
            ast.Name(target), _, ast.expr() as value
        ):
            return value if name == target else None
        case ast.For(ast.Name(target), iter=value):
            return value if name == target else None
    return None


def _returned(source: Source, value: ast.expr) -> Iterator[tuple[Function, ast.Return]]:
    """Yield what functions of the file return that an expression calls."""
    for call in (one for one in ast.walk(value) if isinstance(one, ast.Call)):
        callee = source.functions.get(called(call)) if isinstance(call.func, ast.Name) else None
        if callee is not None:
            yield from ((callee, node) for node in callee.nodes if isinstance(node, ast.Return))


def _handed(source: Source, function: Function, parameter: str) -> Iterator[tuple[Function, ast.expr]]:
    """Yield the arguments that other functions hand over for a parameter."""
    at = function.parameters.index(parameter)
    for caller in source.functions.values():
        for call in (one for one in ast.walk(caller.node) if isinstance(one, ast.Call)):
            if kernel_of(caller.node, call, (function.name,)):
                named = [one.value for one in call.keywords if one.arg == parameter]
                yield from ((caller, one) for one in (named or call.args[at : at + 1]))
