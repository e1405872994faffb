"""Neutral values of an expression, with which it decides nothing: 0, 1, one branch of a choice, or a
comparison that holds always or never.

`2 % tile_n` in place of `tile_n % 2` mends a wrong order of tiles because it switches that order off. With 0
in its place the file is right, too: then the mistake lies in the expression or in what it decides.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from grader.judge.repair.edit import REMOVES, Edit
from grader.judge.repair.source import Part, Source, called

# Calls that return one of their arguments, and the number of the first of these.
CHOOSING = {"where": 1, "minimum": 0, "maximum": 0}


class Neutral(NamedTuple):
    """The code of an expression, and the part that puts a neutral value in its place."""

    code: str
    part: Part


def neutral(source: Source, edit: Edit) -> Iterator[Neutral]:
    """Yield the neutral values of what an edit changes; if it takes something away, of a comparison alone."""
    begin, end = min(at for (at, _), _ in edit.parts), max(at for (_, at), _ in edit.parts)
    if edit.goes_around:
        return
    removes = any(words in edit.kind for words in REMOVES)
    around = [
        node
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Compare if removes else ast.BinOp | ast.Call | ast.Compare)
        and source.span(node)[0] <= begin
        and end <= source.span(node)[1]
    ]
    if not around:
        return
    node, *outside = sorted(around, key=lambda one: source.span(one)[1] - source.span(one)[0])
    if isinstance(node, ast.Call) and source.span(node.func) == (begin, end):
        return  # the other of two functions, which has the same arguments: each of these may be as right
    becomes = source.with_replaced(edit.parts, within=source.span(node))
    for value in _values(source, node):
        if value != becomes:
            yield Neutral(source.text_of(node), (source.span(node), value))
    if not isinstance(node, ast.Compare):  # a number of a comparison, which may hold always, or never
        for whole in (one for one in outside if isinstance(one, ast.Compare)):
            code = source.text_of(whole)
            yield from (Neutral(code, (source.span(whole), value)) for value in _values(source, whole))
    outer = outside[0] if outside else None
    if isinstance(outer, ast.Call) and called(outer) in CHOOSING and node in outer.args:
        for other in outer.args[CHOOSING[called(outer)] :]:
            if other is not node:
                yield Neutral(source.text_of(outer), (source.span(outer), f"({source.text_of(other)})"))


def guarded(source: Source, edit: Edit) -> list[Part]:
    """Return the condition that an edit changes, once so that the file fails where the new condition does not
    hold, and once where it does; nothing if there is no such condition.
    """
    begin, end = min(at for (at, _), _ in edit.parts), max(at for (_, at), _ in edit.parts)
    around = [
        source.span(node)
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Compare) and source.span(node)[0] <= begin and end <= source.span(node)[1]
    ]
    if not around:
        return []
    span = max(around, key=lambda one: one[1] - one[0])
    becomes = source.with_replaced(edit.parts, within=span)
    return [(span, f"(({becomes}) {sign} [][0])") for sign in ("or", "and")]


def spoiled(source: Source, edit: Edit) -> list[Part]:
    """Return the `tl.where` that an edit is in, with each of its choices spoiled; nothing if it is in none.

    Where a file with the edit is right, and wrong with either choice spoiled, it makes both choices.
    """
    begin, end = min(at for (at, _), _ in edit.parts), max(at for (_, at), _ in edit.parts)
    around = [
        node
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Call) and called(node) == "where" and len(node.args) == 3
        and source.span(node)[0] <= begin and end <= source.span(node)[1]
    ]  # fmt: skip
    if not around:
        return []
    node = min(around, key=lambda one: source.span(one)[1] - source.span(one)[0])
    spans = [source.span(one) for one in node.args]
    inside = [[part for part in edit.parts if first <= part[0][0] < last] for first, last in spans]
    texts = [source.with_replaced(parts, within=span) for parts, span in zip(inside, spans, strict=True)]
    function = source.text_of(node.func)
    return [
        (
            source.span(node),
            f"{function}({', '.join((*texts[:at], f'(({texts[at]}) * 0 - 1)', *texts[at + 1 :]))})",
        )
        for at in (1, 2)
    ]


def _values(source: Source, node: ast.BinOp | ast.Call | ast.Compare) -> list[str]:
    if isinstance(node, ast.BinOp):
        return ["0", "1"]
    if isinstance(node, ast.Compare):  # true for all lanes, or for none, in the shape of the block
        left = source.text_of(node.left)
        return [f"(({left}) {sign} ({left}))" for sign in ("==", "!=")]
    name = called(node)
    if name in CHOOSING:
        return [f"({source.text_of(one)})" for one in node.args[CHOOSING[name] :]]
    # Whose result has methods of its own, which a plain number has not.
    return [f"({source.text_of(node)} * 0 + 1)"] if name == "num_programs" else []
