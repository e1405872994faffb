"""Edits of the axes of a block, in all places that must agree on them: a sum with what it is broadcast to."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import combinations

from grader.judge.repair.edit import Edit, quoted
from grader.judge.repair.source import Function, Part, Source, called, names_in

REDUCTIONS = {"sum", "max", "min", "reduce"}
JOINING = {"join", "cat", "interleave"}
RESHAPING = {"reshape", "view"}
TURNED = {":, None": "None, :", "None, :": ":, None"}


def edits(source: Source, function: Function) -> Iterator[Edit]:
    """Yield every edit of a kernel that reduces, reshapes or joins along other axes."""
    if not function.kernel:
        return
    for node in function.nodes:
        match node:
            case ast.Call(ast.Attribute()) if called(node) in REDUCTIONS:
                yield from _of_a_reduction(source, function, node)
            case ast.Call(args=[ast.Call(args=[block, ast.Tuple([first, second])]) as inner]) if (
                called(node) in ("trans", "permute") and called(inner) in RESHAPING
            ):
                turned = f"tl.reshape({source.text_of(block)}, ({_both(source, second, first)}))"
                mistake = f"{quoted(source.text_of(node))} puts the elements in another order"
                yield Edit.of_node(source, 1, node, turned, mistake)
            case ast.Call(args=[block, ast.Tuple([first, second])]) if called(node) in RESHAPING:
                turned = f"tl.trans(tl.reshape({source.text_of(block)}, ({_both(source, second, first)})))"
                mistake = f"{quoted(source.text_of(node))} puts the elements in another order"
                yield Edit.of_node(source, 2, node, turned, mistake)
            case ast.Call(args=[block, ast.Tuple([*first, last, ast.Constant(2)])]) if (
                called(node) in RESHAPING and first
            ):
                order = (*range(len(first)), len(first) + 1, len(first))
                parts = ", ".join((*map(source.text_of, first), "2", source.text_of(last)))
                turned = f"tl.permute(tl.reshape({source.text_of(block)}, ({parts})), {order})"
                mistake = f"{quoted(source.text_of(node))} puts every second element beside the one before it"
                yield Edit.of_node(source, 1, node, turned, mistake)
            case ast.Call(args=[first, second]) if called(node) == "interleave":
                one, other = source.text_of(first), source.text_of(second)
                behind = f"tl.permute(tl.join({one}, {other}), (1, 0)), (2 * ({one}).shape[0],)"
                mistake = (
                    f"{quoted(source.text_of(node))} takes an element of each in turn, and not one block "
                    "behind the other"
                )
                yield Edit.of_node(source, 1, node, f"tl.reshape({behind})", mistake)
                yield from _joined(source, node)
            case ast.Call() if called(node) in JOINING:
                yield from _joined(source, node)


def _both(source: Source, first: ast.expr, second: ast.expr) -> str:
    return f"{source.text_of(first)}, {source.text_of(second)}"


def _of_a_reduction(source: Source, function: Function, call: ast.Call) -> Iterator[Edit]:
    """Reduce along the other of two axes, also what the result is broadcast to or added to."""
    axis = next((one.value for one in call.keywords if one.arg == "axis"), None)
    axis = axis or (call.args[1] if len(call.args) > 1 else None)
    match axis:
        case ast.Constant(int() as number) if abs(number) < 2:
            other = "1" if number == 0 else "0"
        case _:
            return
    mistake = f"{quoted(source.text_of(call))} takes the wrong axis"
    changed = source.with_replaced([(source.span(axis), other)], within=source.span(call))
    keeps = any(one.arg == "keep_dims" for one in call.keywords)
    yield Edit.of_node(source, 1, call, changed if keeps else _keeping(changed), mistake)
    code = source.text_of(call)
    if not keeps:
        yield Edit.of_node(source, 1, call, _keeping(code), f"{quoted(code)} drops the axis that it reduces")
    for around in function.nodes:
        match around:
            case ast.Subscript(value, slice=ast.Tuple() as index) if value is call:
                other_way = {":,None": "None, :", "None,:": ":, None"}.get(
                    source.text_of(index).replace(" ", "")
                )
                if other_way:
                    parts = ((source.span(axis), other), (source.span(index), other_way))
                    yield Edit(1, call.lineno, mistake, parts)
    turned = _turned(source, function, _made_of(function, call))
    if turned:
        yield Edit(1, call.lineno, mistake, ((source.span(axis), other), *turned))


def _keeping(call: str) -> str:
    return f"{call[:-1].rstrip().rstrip(',')}, keep_dims=True)"


def _made_of(function: Function, call: ast.Call) -> set[str]:
    """Return the names that have the shape of a call's result: what is assigned it, or made of that."""
    names: set[str] = set()
    found = [one for one in function.nodes if isinstance(one, ast.Assign | ast.AugAssign)]
    for statement in sorted(found, key=lambda one: one.lineno):
        target = statement.targets[0] if isinstance(statement, ast.Assign) else statement.target
        value = statement.value
        inside = {id(one) for one in ast.walk(value)}
        broadcast = {id(name) for one in ast.walk(value) if _is_broadcast(one) for name in names_in(one)}
        made = any(one.id in names and id(one) not in broadcast for one in names_in(value))
        if isinstance(target, ast.Name) and (id(call) in inside or made):
            names.add(target.id)
    return names


def _is_broadcast(node: ast.AST) -> bool:
    return isinstance(node, ast.Subscript) and "None" in ast.unparse(node.slice)


def _turned(source: Source, function: Function, names: set[str]) -> list[Part]:
    """Return the parts that broadcast some names along the other axis."""
    return [
        (source.span(node.slice), TURNED[ast.unparse(node.slice).strip("()")])
        for node in function.nodes
        if isinstance(node, ast.Subscript)
        and isinstance(node.value, ast.Name)
        and node.value.id in names
        and ast.unparse(node.slice).strip("()") in TURNED
    ]


def _joined(source: Source, call: ast.Call) -> Iterator[Edit]:
    """Exchange two of the blocks that nested calls join."""
    leaves = [one for one in names_in(call) if isinstance(one.ctx, ast.Load)]
    own = [
        one
        for one in leaves
        if not any(isinstance(n, ast.Attribute) and n.value is one for n in ast.walk(call))
    ]
    for one, other in combinations(own, 2):
        if one.id != other.id:
            mistake = f"{quoted(source.text_of(call))} joins its blocks in the wrong order"
            yield Edit(1, call.lineno, mistake, ((source.span(one), other.id), (source.span(other), one.id)))
