"""Edits of masks in a loop over one part of a tensor: its last block must not go on into the next part."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from grader.judge.repair.edit import Edit, quoted
from grader.judge.repair.source import Function, Source, called, names_in

LOOPS = ("range", "static_range")


def edits(source: Source, function: Function) -> Iterator[Edit]:
    """Yield for each index of such a loop the edit that ends all of its masks at the end of the part."""
    if not function.kernel:
        return
    lanes = {name for node in function.nodes for name in _bound_to_lanes(node)}
    for loop in function.nodes:
        match loop:
            case ast.For(ast.Name(turn), ast.Call(args=args)) if called(loop.iter) in LOOPS and args:
                yield from _of_loop(source, loop, turn, args, lanes)


def _of_loop(
    source: Source, loop: ast.For, turn: str, args: list[ast.expr], lanes: set[str]
) -> Iterator[Edit]:
    for node in ast.walk(loop):
        match node:
            case ast.Assign([ast.Name(index)], value) if turn in {one.id for one in names_in(value)}:
                end = _end(source, turn, args, value, lanes)
                if end:
                    ends_with_range = len(args) > 1 and end == source.text_of(args[1])
                    yield from _of_masks(source, loop, index, end, ends_with_range)


def _of_masks(source: Source, loop: ast.For, index: str, end: str, ends_with_range: bool) -> Iterator[Edit]:
    masks = [
        (node, node.left)
        for node in ast.walk(loop)
        if isinstance(node, ast.Compare)
        and isinstance(node.ops[0], ast.Lt)
        and {one.id for one in names_in(node.left)} == {index}
        and source.text_of(node.comparators[0]) != end
    ]
    if not masks or (ends_with_range and len(masks) < 2):  # one by itself is an edit of `blocks`
        return
    first = min((node for node, _ in masks), key=lambda node: node.lineno)
    parts = tuple(
        (source.span(node), f"(({source.text_of(node)}) & ({source.text_of(left)} < ({end})))")
        for node, left in masks
    )
    mistake = (
        f"{quoted(source.text_of(first))} does not stop at the end of a part: its last block goes on into "
        "the next part, which is counted twice"
    )
    yield Edit(2, first.lineno, mistake, parts)


def _end(source: Source, turn: str, args: list[ast.expr], index: ast.expr, lanes: set[str]) -> str:
    """Return the code of where the part ends; "" if the loop runs over a whole tensor."""
    terms = list(_terms(index))
    base = [
        source.text_of(one)
        for one in terms
        if not {turn, *lanes} & {name.id for name in names_in(one)} and called(one) != "arange"
    ]
    match args:
        case [ast.expr() as begin, ast.expr() as stop, *_] if not isinstance(begin, ast.Constant):
            return source.text_of(stop)
        case [ast.Constant(0), ast.expr() as size, *_]:
            pass
        case [ast.Call(args=[size, *_]) as count] if called(count) == "cdiv":
            pass
        case _:
            return ""
    return f"{' + '.join(base)} + ({source.text_of(size)})" if base else ""


def _terms(node: ast.expr) -> Iterator[ast.expr]:
    match node:
        case ast.BinOp(left, ast.Add(), right):
            yield from _terms(left)
            yield from _terms(right)
        case _:
            yield node


def _bound_to_lanes(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Assign([ast.Name(name)], value):
            if any(called(one) == "arange" for one in ast.walk(value)):
                yield name
