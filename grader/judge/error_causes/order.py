"""Values that are handed on in another order than their names say, where a call then fails."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from grader.judge.error_causes.failed import Failed, parameters

FEWEST = 2  # names that stand in another place, of values that are unpacked


def unpacked(failed: Failed) -> str | None:
    """Results of a function of the file, or saved tensors, that are unpacked in another order."""
    for function in failed.own_functions:
        for node in ast.walk(function):
            match node:
                case ast.Assign([ast.Tuple(targets)], value):
                    into = _names(targets)
                case _:
                    continue
            for given, origin in _sources(failed, function, value):
                if into and given and _is_another_order(into, given):
                    return (
                        f"line {node.lineno} unpacks {_listed(into)}, and {origin} {_listed(given)}: "
                        "the order must be the same"
                    )
    return None


def passed(failed: Failed) -> str | None:
    """Names that a call of a function of the file passes for each other."""
    for function in failed.own_functions:
        for node in ast.walk(function):
            match node:
                case ast.Call(ast.Name(name), args) if called := failed.source.defined(name):
                    wanted, given = parameters(called), [_name(one) for one in args]
                case _:
                    continue
            for place, one in zip(wanted, given, strict=False):
                if one and one != place and one in wanted[: len(given)] and given[wanted.index(one)] != one:
                    return (
                        f"line {node.lineno} passes `{one}` for `{place}` of `{name}`: its parameters are "
                        f"{_listed(wanted)}, in this order"
                    )
    return None


def _sources(
    failed: Failed, function: ast.FunctionDef, value: ast.expr
) -> Iterator[tuple[Sequence[str], str]]:
    """Yield the names that a value has in their order, and in words where that order is."""
    match value:
        case ast.Call(ast.Name(name)) if called := failed.source.defined(name):
            for node in ast.walk(called):
                if isinstance(node, ast.Return) and isinstance(node.value, ast.Tuple):
                    first = [_leftmost(one) for one in node.value.elts]
                    yield _names(first), f"`{name}` returns in line {node.lineno}"
        case ast.Attribute(attr="saved_tensors"):
            classes = [one for one in ast.walk(failed.source.tree) if isinstance(one, ast.ClassDef)]
            own = [one for one in classes if function in one.body]
            for node in (inner for one in own for inner in ast.walk(one)):
                match node:
                    case ast.Call(ast.Attribute(attr="save_for_backward"), args):
                        yield _names(args), f"line {node.lineno} saves"


def _is_another_order(one: Sequence[str], other: Sequence[str]) -> bool:
    """Return whether names stand for the same values in two orders; `m` and `m_new` stand for one."""
    if len(one) != len(other) or len({*one}) != len(one):
        return False
    places = [[at for at, name in enumerate(other) if _is_alike(wanted, name)] for wanted in one]
    known = [(at, found[0]) for at, found in enumerate(places) if len(found) == 1]
    moved = [pair for pair in known if pair[0] != pair[1]]
    return len(moved) >= FEWEST and len({there for _, there in known}) == len(known)


def _is_alike(one: str, other: str) -> bool:
    return one == other or one.startswith(f"{other}_") or other.startswith(f"{one}_")


def _names(nodes: Sequence[ast.expr]) -> list[str]:
    """Return the names, or nothing if one of these is none."""
    found = [_name(one) for one in nodes]
    return found if all(found) else []


def _leftmost(node: ast.expr) -> ast.expr:
    """Return what an expression begins with: `d * fade + s` is an update of `d`."""
    while isinstance(node, ast.BinOp):
        node = node.left
    return node


def _name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else ""


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"`{one}`" for one in names)


RULES = (unpacked, passed)
