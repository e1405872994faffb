"""The condition under which host code makes a tensor contiguous: read from the text of a file."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from grader.judge.repair.edit import quoted
from grader.judge.repair.source import Source, called


def conditional_copy(source: Source, name: str) -> str:
    """Say in which line a tensor is copied, and under which condition; "" if none is, or several are."""
    found = [words for one in source.functions.values() for words in _copies(source, one.node, name)]
    return found[0] if len(found) == 1 else ""


def _copies(source: Source, function: ast.AST, name: str) -> Iterator[str]:
    for node in ast.walk(function):
        match node:
            case ast.If(test, body, []) if any(
                isinstance(one, ast.Assign) and _is_copy(one.value, name) for one in body
            ):
                yield _words(source, test, name, "")
            case ast.IfExp(test, body, orelse) if _is_copy(body, name) != _is_copy(orelse, name):
                yield _words(source, test, name, "" if _is_copy(body, name) else " is False")


def _is_copy(value: ast.expr, name: str) -> bool:
    match value:
        case ast.Call(ast.Attribute(ast.Name(tensor))):
            return called(value) == "contiguous" and tensor == name
    return False


def _words(source: Source, test: ast.expr, name: str, ends: str) -> str:
    return f"line {test.lineno} copies `{name}` only where {quoted(source.text_of(test))}{ends}"
