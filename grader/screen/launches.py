"""Whether a graded function launches a kernel of its own file, and whether that kernel stores anything."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Collection, Iterator, Sequence

from grader.course.todos import Todo
from grader.screen.language import STORES
from grader.screen.scopes import File


def missing_launch(
    file: File, todos: Sequence[Todo], name: str, own: Collection[str] = ()
) -> tuple[int, str] | None:
    """Line and reason where `name` launches no kernel that stores; None where it does, or is absent.

    `todos` are the open TODOs that the function reaches; `own` are functions in other files of the student,
    which may launch.
    """
    definitions = file.module.values.get(name, [])
    if not definitions or any(not todo.in_kernel for todo in todos):
        return None
    reached = list(_reach(file, definitions))
    if any(isinstance(node, ast.Call) and file.dotted(node.func) in own for node in reached):
        return None
    launches = [node for node in reached if _is_launch(file, node) and not file.scopes[node].kernel]
    line = min(getattr(node, "lineno", 1) for node in definitions if node) if any(definitions) else 1
    if not launches:
        return (
            line,
            f"{name} launches no kernel of this file; the work is to be done in a @triton.jit function",
        )
    if any(_stores(node) for node in reached if file.scopes[node].kernel):
        return None
    if not any(file.scopes[node].kernel for node in reached):
        why = "what it launches is none of its own; write a @triton.jit function and launch that"
    elif todos:
        return None  # the store is a task still open
    else:
        why = "its kernel stores nothing; the result is to be written by tl.store or by a descriptor's store"
    return line, f"{name} launches no kernel that writes the result: {why}"


def _reach(file: File, definitions: list[ast.AST | None]) -> Iterator[ast.AST]:
    """Every node of the definitions and of whatever of this file they name."""
    seen: set[ast.AST] = set()
    waiting = [one for one in definitions if one]
    while waiting:
        top = waiting.pop()
        if top in seen:
            continue
        seen.add(top)
        for node in ast.walk(top):
            if node not in file.scopes:
                continue
            yield node
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                scope = file.scopes[node].find(node.id)
                waiting += [value for value in scope.values[node.id] if value] if scope else []


def _is_launch(file: File, node: ast.AST) -> bool:
    """`kernel[grid](...)`, or the same in two steps: `launch = kernel[grid]`, and then `launch(...)`."""
    if not isinstance(node, ast.Call):
        return False
    if not isinstance(node.func, ast.Name):
        return isinstance(node.func, ast.Subscript)
    scope = file.scopes[node].find(node.func.id)
    values = scope.values.get(node.func.id, []) if scope else []
    return any(isinstance(value, ast.Subscript) for value in values)


def _stores(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    func = node.func
    name = func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")
    # store_tile of a given module is one; a misspelt store is for the compiler to report, with its line.
    return name.startswith("store") or bool(difflib.get_close_matches(name, STORES, n=1, cutoff=0.75))
