"""The statements of a kernel, and a program's steps grouped by statement instead of by line."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace

from grader.site.figures.excerpts import is_mark
from grader.site.figures.trace import Step

PHASES = ("pointers", "mask", "load", "compute", "store")


@dataclass(frozen=True)
class Statement:
    """One statement, or the head of a loop or a branch: its lines, and its phases in a program."""

    first: int
    last: int
    phases: tuple[str, ...]
    stored: str = ""  # the expression that a store computes, as in the source


def statements(source: str, kernel: str) -> list[Statement]:
    """Return the statements of a kernel in order; ValueError if the file does not define the kernel."""
    return [_statement(one) for one in _flat(_definition(source, kernel).body)]


def lines(source: str, kernel: str) -> list[tuple[int, str]]:
    """Return the lines of a kernel from its `def`, numbered as in the file, without BEGIN and END marks."""
    node, text = _definition(source, kernel), source.splitlines()
    kept = range(node.lineno, node.end_lineno + 1)
    return [(at, text[at - 1]) for at in kept if not is_mark(text[at - 1])]


def _definition(source: str, kernel: str) -> ast.FunctionDef:
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef) and node.name == kernel:
            return node
    raise ValueError(f"the file does not define {kernel}")


def by_statement(steps: list[Step], known: list[Statement]) -> list[tuple[Statement, Step]]:
    """Join the steps of one statement: Python visits the lines of a multi-line call more than once."""
    joined: list[tuple[Statement, Step]] = []
    for step in steps:
        statement = next(one for one in known if one.first <= step.line <= one.last)
        if joined and joined[-1][0] is statement:
            before = joined[-1][1]
            accesses, changed = before.accesses + step.accesses, before.changed | step.changed
            joined[-1] = (statement, replace(before, accesses=accesses, changed=changed))
        else:
            joined.append((statement, replace(step, line=statement.first)))
    return joined


def _flat(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    for node in body:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue  # the docstring
        yield node
        for block in (getattr(node, "body", []), getattr(node, "orelse", [])):
            yield from _flat(block)


def _statement(node: ast.stmt) -> Statement:
    if isinstance(node, ast.For | ast.If | ast.While):
        return Statement(node.lineno, node.lineno, ())
    calls = {_called(one): one for one in ast.walk(node) if isinstance(one, ast.Call)}
    phases, stored = [], ""
    moving = calls.get("load") or calls.get("store")
    if moving and any(key.arg == "mask" and not isinstance(key.value, ast.Name) for key in moving.keywords):
        phases.append("mask")
    if "load" in calls:
        phases.append("load")
    elif "store" in calls:
        value = calls["store"].args[1]
        if not isinstance(value, ast.Name):
            phases.append("compute")
            stored = ast.unparse(value)
        phases.append("store")
    elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Compare):
        phases.append("mask")
    elif {"program_id", "arange"} & set(calls) or _is_pointer(node):
        phases.append("pointers")
    else:
        phases.append("compute")
    return Statement(node.lineno, node.end_lineno, tuple(phases), stored)


def _called(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _is_pointer(node: ast.stmt) -> bool:
    names = [one.id for one in getattr(node, "targets", []) if isinstance(one, ast.Name)]
    return any(name.endswith(("_ptr", "_ptrs")) for name in names)
