"""Edits that make a statement like those near it: of lines that were written as one the odd one out is wrong.

Such inconsistencies of copied code are a common sign of mistakes (Li et al., CP-Miner, 2004).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from grader.judge.repair.edit import Edit, quoted
from grader.judge.repair.source import Function, Source

NEAR = 4  # statements between two that were written as one
MOST_UNLIKE = 2  # places, beside the names that are assigned, in which two like statements differ


def edits(source: Source, function: Function) -> Iterator[Edit]:
    """Yield every edit that puts what a like statement has in place of a part of one."""
    if not function.kernel:
        return
    for body in _bodies(function.node):
        for at, one in enumerate(body):
            for other in body[max(0, at - NEAR) : at + NEAR + 1]:
                if one is not other:
                    yield from _as_in(source, one, other)


def _bodies(node: ast.AST) -> Iterator[Sequence[ast.stmt]]:
    for inner in ast.walk(node):
        for name in ("body", "orelse"):
            body = getattr(inner, name, None)
            if isinstance(body, list):
                yield body


def _as_in(source: Source, one: ast.stmt, other: ast.stmt) -> Iterator[Edit]:
    simple = ast.Assign | ast.AugAssign | ast.Expr
    if type(one) is not type(other) or not isinstance(one, simple):
        return
    unlike = _unlike(one, other)
    if unlike is None or not 0 < len(unlike) <= MOST_UNLIKE:
        return
    for mine, its in unlike:
        code, text = quoted(source.text_of(one)), source.text_of(its)
        mistake = f"{quoted(source.text_of(mine))} in {code} is not as in line {other.lineno}"
        yield Edit.of_node(source, 2, mine, text if isinstance(its, ast.Name) else f"({text})", mistake)


def _unlike(one: ast.AST, other: ast.AST) -> list[tuple[ast.expr, ast.expr]] | None:
    """Return the pairs of expressions in which two nodes differ; None if they were not written as one.

    What is assigned to may differ.
    """
    if ast.dump(one) == ast.dump(other):
        return []
    if isinstance(one, ast.Name | ast.Attribute) and isinstance(one.ctx, ast.Store):
        return [] if type(one) is type(other) else None
    if isinstance(one, ast.expr) and isinstance(other, ast.expr):
        if type(one) is not type(other) or isinstance(one, ast.Name | ast.Constant | ast.Attribute):
            return [(one, other)]
    if type(one) is not type(other):
        return None
    mine, others = [*ast.iter_child_nodes(one)], [*ast.iter_child_nodes(other)]
    if len(mine) != len(others):
        return None
    found = []
    for pair in zip(mine, others, strict=True):
        inner = _unlike(*pair)
        if inner is None:
            return None
        found += inner
    return found
