"""What the parameters of kernels stand for, as their launches show: names may be anything."""

from __future__ import annotations

import ast
from collections.abc import Container, Iterable, Mapping
from typing import NamedTuple

STRIDE, SIZE = "stride", "size"
SIZES = {"numel", "size", "len"}
MOST_PARTS = 5  # of a launch that have names, or stand in each other


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
                launched = kernel_of(node, call, found)
                if launched and launched != name:
                    for parameter, value in pairs(functions[launched], call):
                        one = known.get(value.id) if isinstance(value, ast.Name) else _given(value)
                        if one:
                            found[launched].setdefault(parameter, one)
    return found


def kernel_of(function: ast.FunctionDef, call: ast.Call, kernels: Container[str]) -> str:
    """Return the kernel that a call in a function launches or calls; "" if it is none.

    A launch is `kernel[grid](...)`, also of what `on(kernel, x)` or `wrap_triton(kernel)` returns, and each
    part of it may have a name of its own.
    """
    node: ast.AST = call.func
    for _ in range(MOST_PARTS):
        match node:
            case ast.Name(name) if name in kernels:
                return name
            case ast.Name(name):
                bound = [
                    one.value
                    for one in ast.walk(function)
                    if isinstance(one, ast.Assign)
                    and one.lineno < call.lineno
                    and isinstance(one.targets[0], ast.Name)
                    and one.targets[0].id == name
                ]
                if not bound:
                    return ""
                node = max(bound, key=lambda one: one.lineno)
            case ast.Subscript(value) | ast.Call(args=[value, *_]):
                node = value
            case _:
                return ""
    return ""


def pairs(function: ast.FunctionDef, call: ast.Call) -> list[tuple[str, ast.expr]]:
    """Return the arguments of a call with the names of their parameters, up to one that is unpacked."""
    names = [one.arg for one in (*function.args.posonlyargs, *function.args.args)]
    found = []
    for name, value in zip(names, call.args, strict=False):
        if isinstance(value, ast.Starred):
            break
        found.append((name, value))
    return found + [(one.arg, one.value) for one in call.keywords if one.arg]


def _of_host(function: ast.FunctionDef) -> dict[str, Given]:
    """Return the names that host code binds to a stride or a size of a tensor."""
    found: dict[str, Given] = {}
    for node in ast.walk(function):
        match node:
            case ast.Assign([ast.Name(name)], value):
                named = [(name, _given(value))]
            case ast.Assign([ast.Tuple(targets)], ast.Tuple(values)):
                both = zip(targets, values, strict=False)
                named = [(one.id, _given(value)) for one, value in both if isinstance(one, ast.Name)]
            case ast.Assign([ast.Tuple(targets)], value):
                named = [(one.id, _given(value)) for one in targets if isinstance(one, ast.Name)]
            case _:
                continue
        found |= {name: one for name, one in named if one}
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
