"""Edits of addresses and loops: a stride or an offset that is missing, a step or an end that is not right."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from grader.judge.repair.edit import Edit, quoted
from grader.judge.repair.kinds import Kind, kinds_of
from grader.judge.repair.source import Function, Source, called, names_in

ACCESSES = {"load", "store", "atomic_add"}
SHAPED = {"arange", "zeros", "full", "load", "store", "reshape", "view", "broadcast_to"}
COLUMN, ROW = "[:, None]", "[None, :]"


def edits(source: Source, function: Function) -> Iterator[Edit]:
    """Yield every edit of one address, index or range of a kernel."""
    if not function.kernel:
        return
    kinds = kinds_of(function)
    in_two_axes = any(
        isinstance(node, ast.Subscript) and "None" in source.text_of(node.slice)
        for one in source.functions.values()
        if one.kernel
        for node in one.nodes
    )
    indices = [name for name in function.stored if kinds.get(name) is Kind.INDEX]
    for node in function.nodes:
        if isinstance(node, ast.For):
            yield from _of_a_range(source, function, node, kinds)
            yield from _of_the_last_iteration(source, function, node)
            yield from _as_the_loop_steps(source, node)
        elif isinstance(node, ast.Call) and called(node) in ACCESSES and node.args:
            yield from _of_an_offset(source, node.args[0], [*indices, *_in_its_mask(node, indices)])
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
            yield from _without_a_stride(source, function, node, kinds)
        elif isinstance(node, ast.Call) and called(node) == "arange":
            for name in indices:
                code = quoted(source.text_of(node))
                own = name in function.of_its_program
                mistake = f"{code} counts from 0 in each program" if own else f"{code} has the wrong length"
                yield Edit.of_node(source, 3, node, name, mistake)
        if in_two_axes and isinstance(node, ast.BinOp | ast.Compare):
            yield from _along_an_axis(source, node, kinds)


def _of_a_range(source: Source, function: Function, loop: ast.For, kinds: dict[str, Kind]) -> Iterator[Edit]:
    """Let a loop end one earlier or later, or step over what other programs do."""
    if not isinstance(loop.iter, ast.Call) or not called(loop.iter).endswith("range"):
        return
    given = loop.iter.args
    code = quoted(source.text_of(loop.iter))
    stop = given[0] if len(given) == 1 else given[1] if len(given) > 1 else None
    if stop is not None:
        for change in ("+ 1", "- 1"):
            mistake = f"the loop over {code} ends in the wrong place"
            yield Edit.of_node(source, 2, stop, f"({source.text_of(stop)}) {change}", mistake)
    if len(given) > 1 and not isinstance(given[0], ast.Constant):
        used = {one.id for one in names_in(given[0])}
        sizes = {*function.constants, *function.constexprs} & {one.id for one in names_in(loop)}
        for factor in sorted(sizes - used):
            mistake = f"the loop over {code} begins in the wrong place: `{source.text_of(given[0])}`"
            yield Edit.of_node(source, 1, given[0], f"({source.text_of(given[0])}) * {factor}", mistake)
    if len(given) == 3 and source.text_of(given[0]) == "0":  # the first block may be taken before the loop
        mistake = f"the loop over {code} begins in the wrong place: `0`"
        yield Edit.of_node(source, 1, given[0], source.text_of(given[2]), mistake)
    if len(given) == 3:
        whole = [name for name in (*function.constants, *function.parameters, *function.stored)
                 if kinds.get(name) in (Kind.SIZE, Kind.CONSTANT, Kind.INDEX)]  # fmt: skip
        step = source.text_of(given[2])
        programs = ["tl.num_programs(0)", "tl.num_programs(1)"]
        mistake = f"the step of {code} is wrong: iterations, or programs, overlap or leave gaps"
        for text in (*programs, *(f"({step}) * {factor}" for factor in programs)):
            yield Edit.of_node(source, 1, given[2], text, mistake)
        for factor in whole:
            yield Edit.of_node(source, 3, given[2], f"({step}) * {factor}", mistake)


def _of_the_last_iteration(source: Source, function: Function, loop: ast.For) -> Iterator[Edit]:
    """Count what is left in the last iteration in place of a whole step, as a number of elements."""
    match loop:
        case ast.For(ast.Name(at), ast.Call(args=[_, stop, ast.Name(step)])) if called(loop.iter).endswith(
            "range"
        ):
            left = f"tl.minimum({step}, ({source.text_of(stop)}) - {at})"
        case _:
            return
    lanes = {
        inner
        for node in ast.walk(loop)
        if isinstance(node, ast.Call) and (called(node) in SHAPED or node is loop.iter)
        for inner in ast.walk(node)
    }
    sizes = {step, *_made_of(function, step, loop)}
    for statement in loop.body:
        for node in names_in(statement):
            if node.id in sizes and isinstance(node.ctx, ast.Load) and node not in lanes:
                mistake = f"`{node.id}` counts the elements of the last block, of which fewer are left"
                yield Edit.of_node(source, 1, node, left, mistake)


def _made_of(function: Function, step: str, loop: ast.For) -> Iterator[str]:
    """Yield the names that a kernel binds before a loop to what is made of its step."""
    for node in function.nodes:
        match node:
            case ast.Assign([ast.Name(name)], value) | ast.AnnAssign(ast.Name(name), _, ast.expr() as value):
                if node.lineno < loop.lineno and step in {one.id for one in names_in(value)}:
                    yield name


def _as_the_loop_steps(source: Source, loop: ast.For) -> Iterator[Edit]:
    """Move a pointer by the step of its loop, where it moves by a part of that."""
    match loop.iter:
        case ast.Call(args=[_, _, ast.BinOp() as step]):
            factors = {one.id for one in names_in(step)}
        case _:
            return
    moves: list[ast.expr] = []
    for node in (inner for statement in loop.body for inner in ast.walk(statement)):
        if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add):
            moves.append(node.value)
        elif called(node) == "advance":
            moves += node.args[1:]  # type: ignore[attr-defined]
    parts = []
    for move in moves:
        names = [one for one in names_in(move) if one.id in factors]
        if len(names) == 1:
            begin, (start, stop) = source.span(move)[0], source.span(names[0])
            text = source.text_of(move).encode()
            longer = f"({source.text_of(step)})".encode()
            changed = text[: start - begin] + longer + text[stop - begin :]
            parts.append((source.span(move), changed.decode()))
    if parts:
        mistake = f"the loop steps by {quoted(source.text_of(step))}, and pointers move by less"
        yield Edit(1, loop.lineno, mistake, tuple(parts))


def _in_its_mask(access: ast.Call, known: list[str]) -> list[str]:
    """Return the names that the mask of an access adds to an index, and its address may lack."""
    masks = [one.value for one in access.keywords if one.arg == "mask"] or access.args[1:]
    left = [
        node.left for mask in masks for node in ast.walk(mask)
        if isinstance(node, ast.Compare) and isinstance(node.left, ast.BinOp)
    ]  # fmt: skip
    names = dict.fromkeys(one.id for node in left for one in names_in(node))
    return [name for name in names if name not in known and name != "tl"]


def _of_an_offset(source: Source, pointer: ast.expr, indices: list[str]) -> Iterator[Edit]:
    """Add to an address an index that is not in it, such as the start of a tile."""
    used = {one.id for one in names_in(pointer)}
    code = source.text_of(pointer)
    for name in indices:
        if name not in used:
            mistake = f"the address {quoted(code)} does not depend on `{name}`"
            yield Edit.of_node(source, 2, pointer, f"{code} + {name}", mistake)


def _without_a_stride(
    source: Source, function: Function, node: ast.BinOp, kinds: dict[str, Kind]
) -> Iterator[Edit]:
    """Multiply a term of an address by a stride, where it is added as it is."""
    used = {one.id for one in names_in(node)}
    loops = {name.id for one in function.nodes if isinstance(one, ast.For) for name in names_in(one.target)}
    for term in (node.left, node.right):
        inner = term.value if isinstance(term, ast.Subscript) else term
        if not isinstance(inner, ast.Name) or kinds.get(inner.id) is not Kind.INDEX:
            continue
        for stride in (name for name in function.parameters if kinds.get(name) is Kind.STRIDE):
            if stride not in used:
                rank = 1 if stride not in function.read else 3
                mistake = f"{quoted(source.text_of(term))} is not multiplied by a stride"
                edit = Edit.of_node(source, rank, term, f"({source.text_of(term)} * {stride})", mistake)
                # The later turns of a loop may then lie behind the end of a row, where masks leave them out.
                yield edit.avoiding() if inner.id in loops and rank > 1 else edit


def _along_an_axis(source: Source, node: ast.BinOp | ast.Compare, kinds: dict[str, Kind]) -> Iterator[Edit]:
    """Lay a vector along an axis of a block of two axes, where it is used as it is."""
    operands = (node.left, node.right) if isinstance(node, ast.BinOp) else (node.left, *node.comparators)
    for one in operands:
        if isinstance(one, ast.Name) and kinds.get(one.id) in (Kind.VALUE, Kind.INDEX, Kind.MASK, None):
            for axis in (COLUMN, ROW):
                mistake = (
                    f"`{one.id}` is not laid along an axis of the block in {quoted(source.text_of(node))}"
                )
                yield Edit.of_node(source, 3, one, one.id + axis, mistake)
