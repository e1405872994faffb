"""Values with which an expression decides nothing: what is right with one of them was not cured by an edit.

`2 % tile_n` in place of `tile_n % 2` mends a wrong order of tiles where it switches that order off. With 0 in
its place the file is right, too: then the mistake lies in the expression or in what it decides.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from grader.judge.repair.edit import REMOVES, Edit
from grader.judge.repair.source import Part, Source, called

CHOOSING = {
    "where": 1,
    "minimum": 0,
    "maximum": 0,
}  # calls that take one of their arguments, from this one on


class Neutral(NamedTuple):
    """The code of an expression, and the part that puts a neutral value in its place."""

    code: str
    part: Part


def neutral(source: Source, edit: Edit) -> Iterator[Neutral]:
    """Yield the neutral values of what an edit changes; none if it only takes something away."""
    begin, end = min(at for (at, _), _ in edit.parts), max(at for (_, at), _ in edit.parts)
    if any(words in edit.kind for words in REMOVES) or edit.goes_around:
        return
    around = [
        node
        for node in ast.walk(source.tree)
        if isinstance(node, ast.BinOp | ast.Call) and _covers(source.span(node), begin, end)
    ]
    around.sort(key=lambda node: source.span(node)[1] - source.span(node)[0])
    for node, outer in zip(around[:1], [*around[1:2], None], strict=False):
        span = source.span(node)
        becomes = source.with_replaced(edit.parts, within=span)
        values = _values(source, node)
        yield from (Neutral(source.text_of(node), (span, value)) for value in values if value != becomes)
        if isinstance(outer, ast.Call) and called(outer) in CHOOSING and node in outer.args:
            others = [source.text_of(one) for one in outer.args[CHOOSING[called(outer)] :] if one is not node]
            yield from (Neutral(source.text_of(outer), (source.span(outer), f"({text})")) for text in others)


def _covers(span: tuple[int, int], begin: int, end: int) -> bool:
    return span[0] <= begin and end <= span[1]


def _values(source: Source, node: ast.BinOp | ast.Call) -> list[str]:
    if isinstance(node, ast.BinOp):
        return ["0", "1"]
    name = called(node)
    if name in CHOOSING:
        return [f"({source.text_of(one)})" for one in node.args[CHOOSING[name] :]]
    return ["1"] if name == "num_programs" else []
