"""Edits that leave the lanes past the end of a row out of a sum or a maximum.

They are masked where they are loaded. What is computed with them, such as x - mean, is not 0 any more.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from grader.judge.repair.edit import Edit, quoted
from grader.judge.repair.source import Function, Part, Source, called, names_in

NEUTRAL = {"sum": "0.0", "max": "-float('inf')", "min": "float('inf')"}
COUNTER = "_at"  # names what a loop counts that has no name
MOST_CONDITIONS = 6  # for one reduction


def edits(source: Source, function: Function) -> Iterator[Edit]:
    """Yield an edit for each reduction of a kernel, and each condition that lanes in the row fulfil."""
    if not function.kernel:
        return
    loops = [node for node in function.nodes if isinstance(node, ast.For)]
    for node in function.nodes:
        name = called(node)
        if (
            name in NEUTRAL
            and isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.args
        ):
            value, code = node.args[0], source.text_of(node.args[0])
            mistake = f"lanes past the end of the row count in {quoted(source.text_of(node))}"
            around = [loop for loop in loops if any(inner is node for inner in ast.walk(loop))]
            found = dict.fromkeys((*_of_vectors(source, function, node, loops), *_of_loops(source, around)))
            for condition, parts in [*found][:MOST_CONDITIONS]:
                text = f"tl.where({condition}, {code}, {NEUTRAL[name]})"
                yield Edit(2, node.lineno, mistake, ((source.span(value), text), *parts))


def _of_vectors(
    source: Source, function: Function, before: ast.Call, loops: list[ast.For]
) -> Iterator[tuple[str, tuple[Part, ...]]]:
    """Compare the columns of a block, which have a name, with the number at which a loop over them ends."""
    ends = _ends(source, loops)
    ends += [
        source.text_of(one.comparators[0])
        for one in function.nodes
        if isinstance(one, ast.Compare) and isinstance(one.ops[0], ast.Lt)
    ]
    vectors = dict.fromkeys(
        one.targets[0].id
        for one in function.nodes
        if isinstance(one, ast.Assign)
        and isinstance(one.targets[0], ast.Name)
        and one.lineno <= before.lineno
        and any(called(inner) == "arange" for inner in ast.walk(one.value))
    )
    for name in reversed(vectors):
        for end in dict.fromkeys(ends):
            yield f"{name} < {end}", ()


def _of_loops(source: Source, around: list[ast.For]) -> Iterator[tuple[str, tuple[Part, ...]]]:
    """Count the columns of a block from what its loop counts."""
    for loop in around:
        match loop:
            case ast.For(ast.Name(name), ast.Call(args=[_, stop, step])):
                parts: tuple[Part, ...] = ()
                if name == "_":
                    name, parts = COUNTER, ((source.span(loop.target), COUNTER),)
                lanes = f"{name} + tl.arange(0, {source.text_of(step)})"
                yield f"{lanes} < {source.text_of(stop)}", parts


def _ends(source: Source, loops: list[ast.For]) -> list[str]:
    found = []
    for loop in loops:
        match loop.iter:
            case ast.Call(args=[_, stop, _]) if [*names_in(stop)]:
                found.append(source.text_of(stop))
    return found
