"""Edits of the order of tiles in groups: the last group may have fewer rows of tiles than the others."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from grader.judge.repair.edit import Edit, quoted
from grader.judge.repair.kinds import Kind, kinds_of
from grader.judge.repair.source import Function, Source, called


def edits(source: Source, function: Function) -> Iterator[Edit]:
    """Yield the edits that divide within a group by the rows that it has, where they divide by a constant."""
    if not function.kernel:
        return
    kinds = kinds_of(function)
    divisions = [
        node for node in function.nodes
        if isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.Mod | ast.FloorDiv)
        and isinstance(node.right, ast.Name)
    ]  # fmt: skip
    constants = dict.fromkeys(node.right.id for node in divisions if isinstance(node.right, ast.Name))
    for group in constants:
        ours = [one for one in divisions if isinstance(one.right, ast.Name) and one.right.id == group]
        if {type(one.op) for one in ours} != {ast.Mod, ast.FloorDiv}:
            continue
        mistake = f"the last group may have fewer rows than `{group}`: {quoted(source.text_of(ours[0]))}"
        for first in _first_rows(function, group):
            for tiles in _tiles(function, kinds):
                height = f"min({tiles} - {first}, {group})"
                parts = tuple((source.span(one), _by(source, one, height)) for one in ours)
                yield Edit(1, ours[0].lineno, mistake, parts)


def _by(source: Source, node: ast.BinOp, divisor: str) -> str:
    sign = "%" if isinstance(node.op, ast.Mod) else "//"
    return f"({source.text_of(node.left)} {sign} {divisor})"


def _first_rows(function: Function, group: str) -> list[str]:
    """Return the names of the first row of a group: a number of groups times their height."""
    return [
        node.targets[0].id
        for node in function.nodes
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.BinOp)
        and isinstance(node.value.op, ast.Mult)
        and isinstance(node.value.right, ast.Name)
        and node.value.right.id == group
    ]


def _tiles(function: Function, kinds: dict[str, Kind]) -> Iterator[str]:
    """Give what may be the number of rows of tiles: names that the kernel has, and quotients of a size."""
    for node in function.nodes:
        match node:
            case ast.Assign([ast.Name(name)], ast.Call()) if called(node.value) == "cdiv":
                yield name
    yield from (name for name in function.parameters if "tile" in name.lower() or name.startswith("num"))
    for size in (name for name in function.parameters if kinds.get(name) is Kind.SIZE):
        for block in sorted(function.constexprs):
            if block.startswith(("BLOCK", "TILE")):
                yield f"tl.cdiv({size}, {block})"
