"""How many axes the values of a kernel have, and a value that a loop gives another number of them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence

from grader.judge.error_causes.failed import Failed, is_new_axis, short
from grader.judge.repair.source import called

_OF_SHAPES = re.compile(
    r"incompatible dimensions|Expected pointer argument to have shape|[Ll]oop-carried|initial type|"
    r"initial value for .* is of type"
)
REDUCING = {"sum", "max", "min", "argmax", "argmin", "reduce"}
MAKING = {"zeros", "full"}
OF_AN_OPERAND = {"trans", "cast", "to", "load", "exp", "exp2", "log", "sqrt", "rsqrt", "where", "maximum"}
OF_AN_OPERAND |= {"minimum", "fma", "sigmoid", "abs", "flip", "cumsum", "broadcast"}
Axes = dict[str, int]  # of the values that names have


def carried(failed: Failed) -> str | None:
    """A value that begins with so many axes, and gets another number of them in a loop."""
    function = failed.function
    if not failed.in_kernel or function is None or not _OF_SHAPES.search(failed.text):
        return None
    known, made = Axes(), dict[str, ast.stmt]()
    for statement, in_loop in _statements(function.body, in_loop=False):
        name, value = _bound(statement)
        if not name or value is None:
            continue
        before, now = known.get(name), _axes(value, known)
        if isinstance(statement, ast.AugAssign):
            now = max((one for one in (before, now) if one is not None), default=None)
        begun = made.get(name)
        if in_loop and begun and _is_start(begun) and before and now and now > before:
            return (
                f"`{name}` begins with {_words(before)} in line {begun.lineno}, and line "
                f"{statement.lineno} gives it {_words(now)}{_by(value)}: it must keep its shape"
            )
        if now is None:
            known.pop(name, None)
        else:
            known[name] = now
        made[name] = statement
    return None


def _statements(body: Sequence[ast.stmt], in_loop: bool) -> Iterator[tuple[ast.stmt, bool]]:
    """Yield the statements of a body in their order, and whether each is in a loop."""
    for one in body:
        if isinstance(one, ast.For | ast.While | ast.If | ast.With):
            yield from _statements(one.body, in_loop or isinstance(one, ast.For | ast.While))
            yield from _statements(getattr(one, "orelse", []), in_loop)
        else:
            yield one, in_loop


def _bound(statement: ast.stmt) -> tuple[str, ast.expr | None]:
    match statement:
        case ast.Assign([ast.Name(name)], value) | ast.AugAssign(ast.Name(name), _, value):
            return name, value
    return "", None


def _is_start(statement: ast.stmt) -> bool:
    """Return whether a statement makes a block of which it says the shape."""
    _, value = _bound(statement)
    return isinstance(value, ast.Call) and called(value) in MAKING


def _axes(node: ast.expr, known: Mapping[str, int]) -> int | None:
    """Return how many axes a value has, None where that is not known."""
    match node:
        case ast.Name(name):
            return known.get(name)
        case ast.Subscript(value, ast.Tuple(index)):
            whole = all(isinstance(one, ast.Slice) or is_new_axis(one) for one in index)
            return len(index) if whole else _axes(value, known)
        case ast.BinOp(left, _, right):
            return _most([left, right], known)
        case ast.Compare(left, _, others):
            return _most([left, *others], known)
        case ast.UnaryOp(_, operand):
            return _axes(operand, known)
        case ast.Call():
            return _axes_of_a_call(node, known)
    return None


def _axes_of_a_call(node: ast.Call, known: Mapping[str, int]) -> int | None:
    name = called(node)
    operands = [*node.args]
    match node.func:
        case ast.Attribute(ast.Name(owner)) if owner not in known:
            pass  # a module: tl.exp(x)
        case ast.Attribute(owner):
            operands = [owner]  # x.to(tl.float32)
    if name in MAKING:
        shape = node.args[0] if node.args else None
        return len(shape.elts) if isinstance(shape, ast.Tuple | ast.List) else None
    if name == "arange":
        return 1
    if name == "dot":
        return 2
    if name in REDUCING and operands:
        of, axis = _axes(operands[0], known), [one for one in node.keywords if one.arg == "axis"]
        keeps = [one.value for one in node.keywords if one.arg == "keep_dims"]
        if keeps and isinstance(keeps[0], ast.Constant) and keeps[0].value:
            return 2 if of is None else of
        return of - 1 if of and (axis or len(node.args) > 1) else None
    return _most(operands, known) if name in OF_AN_OPERAND else None


def _most(nodes: Sequence[ast.expr], known: Mapping[str, int]) -> int | None:
    return max((count for one in nodes if (count := _axes(one, known)) is not None), default=None)


def _by(value: ast.expr) -> str:
    """Say what in a value has an axis more; "" if that is not plain."""
    for node in ast.walk(value):
        match node:
            case ast.Call(keywords=keywords) if any(one.arg == "keep_dims" for one in keywords):
                return f", because {short(node)} keeps the axis that it reduces"
            case ast.Subscript(slice=ast.Tuple(index)) if any(map(is_new_axis, index)):
                return f", because of {short(node)}"
    return ""


def _words(count: int) -> str:
    return "one axis" if count == 1 else "two axes" if count == 2 else f"{count} axes"


RULES = (carried,)
