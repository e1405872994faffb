"""Where an operand of a kernel comes from: the tensor it is loaded from, and the line that makes that."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from grader.judge.error_causes.failed import Failed, parameters, short
from grader.judge.repair.launched import pairs

MOST_STEPS = 6  # from an operand to the parameter that points to it


def origin(failed: Failed, operand: ast.expr) -> str:
    """Say from which tensor an operand is loaded, if host code gives that a dtype; else ""."""
    pointer = _pointer(failed, operand)
    launched = failed.launch()
    if pointer is None or launched is None:
        return ""
    kernel, call = launched
    tensor = dict(pairs(kernel, call)).get(pointer)
    host = failed.source.function(call.lineno)
    if not isinstance(tensor, ast.Name) or host is None:
        return ""
    for node in ast.walk(host):
        match node:
            case ast.Assign([ast.Name(name)], ast.Call(keywords=keywords)) if name == tensor.id:
                dtype = next((one.value for one in keywords if one.arg == "dtype"), None)
                if dtype is not None:
                    return f", loaded from `{name}`, which line {node.lineno} makes as {short(dtype)}"
    return ""


def _pointer(failed: Failed, operand: ast.expr) -> str | None:
    """Follow an operand to the parameter of its kernel that it is loaded from; None if that is not clear."""
    kernel, at = failed.function, operand
    if kernel is None:
        return None
    for _ in range(MOST_STEPS):
        first = next(_plain_names(at), None)
        if first is None or first in parameters(kernel):
            return first
        bound = [
            node.value
            for node in ast.walk(kernel)
            if isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Name)
            and node.targets[0].id == first
        ]
        if len(bound) != 1:
            return None
        at = bound[0]
    return None


def _plain_names(node: ast.AST) -> Iterator[str]:
    """Yield the names in an expression, in the order of its text, without that of the module."""
    names = [one for one in ast.walk(node) if isinstance(one, ast.Name) and one.id not in ("tl", "triton")]
    return (one.id for one in sorted(names, key=lambda one: (one.lineno, one.col_offset)))
