"""What the parameters of kernels stand for, as their launches show: names may be anything."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from typing import NamedTuple

STRIDE, SIZE = "stride", "size"
SIZES = {"numel", "size", "len"}


class Given(NamedTuple):
    """What a launch hands over: a stride or a size, and the tensor that has it, as the launch writes it."""

    what: str
    of: str


def given(functions: Mapping[str, ast.FunctionDef], kernels: Iterable[str]) -> dict[str, dict[str, Given]]:
    """Return for each kernel the parameters that are strides or sizes of a tensor.

    `functions` are those of the file. A kernel that is called by another one gets what that one was given.
    """
    found: dict[str, dict[str, Given]] = {name: {} for name in kernels}
    for _ in range(2):  # a kernel may stand before the one that calls it
        for name, node in functions.items():
            known = found[name] if name in found else _of_host(node)
            for call in (one for one in ast.walk(node) if isinstance(one, ast.Call)):
                launched = call.func.value if isinstance(call.func, ast.Subscript) else call.func
                if isinstance(launched, ast.Name) and launched.id in found and launched.id != name:
                    for parameter, value in _pairs(functions[launched.id], call):
                        one = known.get(value.id) if isinstance(value, ast.Name) else _given(value)
                        if one:
                            found[launched.id].setdefault(parameter, one)
    return found


def _pairs(function: ast.FunctionDef, call: ast.Call) -> list[tuple[str, ast.expr]]:
    """Return the arguments of a call with the names of their parameters, up to one that is unpacked."""
    names = [one.arg for one in (*function.args.posonlyargs, *function.args.args)]
    pairs = []
    for name, value in zip(names, call.args, strict=False):
        if isinstance(value, ast.Starred):
            break
        pairs.append((name, value))
    return pairs + [(one.arg, one.value) for one in call.keywords if one.arg]


def _of_host(function: ast.FunctionDef) -> dict[str, Given]:
    """Return the names that host code binds to a stride or a size of a tensor."""
    found: dict[str, Given] = {}
    for node in ast.walk(function):
        match node:
            case ast.Assign([ast.Name(name)], value):
                pairs = [(name, _given(value))]
            case ast.Assign([ast.Tuple(targets)], ast.Tuple(values)):
                named = zip(targets, values, strict=False)
                pairs = [(one.id, _given(value)) for one, value in named if isinstance(one, ast.Name)]
            case ast.Assign([ast.Tuple(targets)], value):
                pairs = [(one.id, _given(value)) for one in targets if isinstance(one, ast.Name)]
            case _:
                continue
        found |= {name: one for name, one in pairs if one}
    return found


def _given(value: ast.expr) -> Given | None:
    """Return what an expression, or each part that it unpacks to, is of a tensor; None if neither."""
    match value:
        case ast.Call(func=ast.Attribute(value=tensor, attr="stride")):
            return Given(STRIDE, ast.unparse(tensor))
        case ast.Call(func=ast.Attribute(value=tensor, attr=name)) if name in SIZES:
            return Given(SIZE, ast.unparse(tensor))
        case ast.Attribute(value=tensor, attr="shape") | ast.Subscript(ast.Attribute(tensor, "shape")):
            return Given(SIZE, ast.unparse(tensor))
        case ast.Subscript(ast.Call(func=ast.Attribute(tensor, "stride"))):
            return Given(STRIDE, ast.unparse(tensor))
    return None
