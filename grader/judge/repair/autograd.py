"""Edits of what an autograd function keeps for its backward pass, and of what it is applied to."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from grader.judge.repair.edit import Edit, quoted
from grader.judge.repair.source import Function, Source, called

RESULT = "_result_of_forward"


def edits(source: Source, function: Function) -> Iterator[Edit]:
    """Yield every edit that hands over another name: to save_for_backward, to an attribute of ctx, to apply.

    They come before all others: what is computed there is right in itself, and wrong values go in.
    """
    if function.kernel:
        return
    names = dict.fromkeys((*function.parameters, *function.stored))
    own = [name for name in names if name not in ("ctx", "_")]
    for node in function.nodes:
        for one in _handed(node):
            mistake = f"`{one.id}` is the wrong value in {quoted(source.text_of(node))}"
            for other in own:
                if other != one.id:
                    yield Edit.of_node(source, 0, one, other, mistake)
            if called(node) == "save_for_backward":
                yield from _of_the_result(source, function, one, mistake)


def _handed(node: ast.AST) -> list[ast.Name]:
    match node:
        case ast.Call() if called(node) in ("save_for_backward", "apply"):
            return [one for one in node.args if isinstance(one, ast.Name)]
        case ast.Assign([ast.Attribute(ast.Name("ctx"))], ast.Name() as value):
            return [value]
    return []


def _of_the_result(source: Source, function: Function, saved: ast.Name, mistake: str) -> Iterator[Edit]:
    """Save what the function returns, where that has no name yet."""
    match function.node.body[-1]:
        case ast.Return(ast.expr() as value) if not isinstance(value, ast.Name | ast.Tuple):
            kept = f"({RESULT} := {source.text_of(value)})"
            parts = ((source.span(saved), kept), (source.span(value), RESULT))
            yield Edit(0, saved.lineno, mistake, parts)
