"""Edits of loops over the blocks of a row: what a block takes from the first one, and numbers of blocks."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from grader.judge.repair.edit import Edit, quoted
from grader.judge.repair.kinds import Kind, kinds_of
from grader.judge.repair.source import Function, Source, called, names_in

MOST_PLACES = 8


def edits(source: Source, function: Function) -> Iterator[Edit]:
    """Yield every edit that lets a loop of a kernel use the columns of its own block."""
    if not function.kernel:
        return
    loops = [
        node for node in function.nodes if isinstance(node, ast.For) and isinstance(node.target, ast.Name)
    ]
    for loop in loops:
        yield from _moved_on(source, function, loop)
        yield from _up_to_the_end(source, loop)
        yield from _up_to_the_end_of_a_share(source, function, loop)
        yield from _in_elements(source, function, loop)
    yield from _from_the_second(source, function)
    yield from _left_behind(source, function)
    yield from _loaded_once(source, function, loops)
    yield from _one_more_each(source, function)
    yield from _of_another_size(source, function, loops)


def _moved_on(source: Source, function: Function, loop: ast.For) -> Iterator[Edit]:
    """Add the start of the block to what is used as an index in a loop, in all of its places."""
    assert isinstance(loop.target, ast.Name)
    start = loop.target.id
    inside = [name for one in loop.body for name in names_in(one)]
    bound = {one.id for one in inside if isinstance(one.ctx, ast.Store)}
    for index in sorted(_ranges(function) - bound):
        used = [one for one in inside if one.id == index]
        places = [one for one in used if not _is_moved(loop, one, start)]
        if 0 < len(places) <= MOST_PLACES and (len(places) > 1 or len(places) < len(used)):
            parts = tuple((source.span(one), f"({start} + {index})") for one in places)
            mistake = f"the loop over `{start}` uses `{index}`, the same elements in each iteration"
            yield Edit(0 if len(places) < len(used) else 1, places[0].lineno, mistake, parts)


def _of_another_size(source: Source, function: Function, loops: list[ast.For]) -> Iterator[Edit]:
    """Let loops run over blocks of the size that is loaded: a launch may have counted others.

    Where an autotuner chooses that size, what host code computes from another is right for some configs.
    """
    blocks = dict.fromkeys(
        node.args[-1].id
        for node in function.nodes
        if isinstance(node, ast.Call) and called(node) == "arange" and isinstance(node.args[-1], ast.Name)
    )
    sizes = [name for name, kind in kinds_of(function).items() if kind is Kind.SIZE]
    ends: dict[str, list[ast.Name]] = {}
    inside: dict[str, set[str]] = {}  # the names in the loops
    for loop in loops:
        match loop.iter:
            case ast.Call(args=[ast.Name(end) as stop] | [_, ast.Name(end) as stop]) if (
                called(loop.iter).endswith("range") and end in function.parameters
            ):
                ends.setdefault(end, []).append(stop)
                inside.setdefault(end, set()).update(one.id for part in loop.body for one in names_in(part))
            case ast.Call(args=[_, _, ast.Name() | ast.Constant() as step]) if called(loop.iter).endswith(
                "range"
            ):
                words = (
                    f"the loop steps by {quoted(source.text_of(step))}, and takes `{{}}` elements at a time"
                )
                for block in blocks:
                    yield Edit.of_node(source, 1, step, block, words.format(block))
    for end, stops in ends.items():
        for size in (one for one in sizes if one != end and one in inside[end]):
            for block in (one for one in blocks if one in inside[end]):
                count = f"tl.cdiv({size}, {block})"
                mistake = f"`{end}` counts blocks of another size than `{block}`: there are `{count}`"
                parts = tuple((source.span(one), count) for one in stops)
                yield Edit(1, stops[0].lineno, mistake, parts)


def _up_to_the_end(source: Source, loop: ast.For) -> Iterator[Edit]:
    """Let the masks of a loop end where its range does, which is the share of the program."""
    match loop.iter:
        case ast.Call(args=[_, ast.Name() | ast.BinOp() as stop, *_]):
            end = source.text_of(stop)
        case _:
            return
    for node in (inner for part in loop.body for inner in ast.walk(part)):
        match node:
            case ast.Compare(index, [ast.Lt()], [ast.Name(size)]) if size != end:
                code = source.text_of(node)
                both = f"(({code}) & (({source.text_of(index)}) < ({end})))"
                mistake = (
                    f"{quoted(code)} goes on behind {quoted(end)}, where the range of line {loop.lineno} ends"
                )
                yield Edit.of_node(source, 1, node, both, mistake)


def _up_to_the_end_of_a_share(source: Source, function: Function, loop: ast.For) -> Iterator[Edit]:
    """Let a mask that counts what is left of all, `ks < K - k`, end where the share of the loop does."""
    match loop:
        case ast.For(ast.Name(step), ast.Call(args=[ast.Constant(0), stop, *_])):
            share = source.text_of(stop)
        case _:
            return
    starts = {
        name: source.text_of(first)
        for node in function.nodes
        if isinstance(node, ast.Assign)
        for name, first in _begins(node)
    }
    for node in (inner for part in loop.body for inner in ast.walk(part)):
        match node:
            case ast.Compare(index, [ast.Lt()], [ast.BinOp(whole, ast.Sub(), ast.Name(left))]) if (
                left == step and source.text_of(whole) != share
            ):
                first = next((starts[one.id] for one in names_in(index) if one.id in starts), "")
            case _:
                continue
        if first:
            code, lanes = source.text_of(node), source.text_of(index)
            both = f"(({code}) & (({lanes}) - ({first}) < ({share}) - {step}))"
            mistake = (
                f"{quoted(code)} goes on behind the share of {quoted(share)}, where the range of line "
                f"{loop.lineno} ends"
            )
            yield Edit.of_node(source, 1, node, both, mistake)


def _begins(node: ast.Assign) -> Iterator[tuple[str, ast.expr]]:
    """Give the name of a block of indices with what is added to its `tl.arange`."""
    match node:
        case ast.Assign([ast.Name(name)], ast.BinOp(left, ast.Add(), right)):
            for first, lanes in ((left, right), (right, left)):
                if called(lanes) == "arange":
                    yield name, first


def _in_elements(source: Source, function: Function, loop: ast.For) -> Iterator[Edit]:
    """Multiply the number of a block by the size of one, where a loop counts blocks."""
    assert isinstance(loop.target, ast.Name)
    size = _block_of(source, function, loop)
    if not size:
        return
    number = loop.target.id
    products = {
        id(name)
        for node in ast.walk(loop)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult) and size in source.text_of(node)
        for name in names_in(node)
    }
    for node in (inner for part in loop.body for inner in ast.walk(part)):
        if isinstance(node, ast.BinOp | ast.Compare):
            for one in [part for part in ast.iter_child_nodes(node) if isinstance(part, ast.Name)]:
                if one.id == number and id(one) not in products:
                    mistake = f"`{number}` counts blocks, and {quoted(source.text_of(node))} needs elements"
                    yield Edit.of_node(source, 0, one, f"({number} * {size})", mistake)


def _block_of(source: Source, function: Function, loop: ast.For) -> str:
    """Return the size of a block where the end of a loop's range is a number of blocks; "" if it is not."""
    match loop.iter:
        case ast.Call(args=[stop] | [_, stop]) if called(loop.iter).endswith("range"):
            pass
        case _:
            return ""
    if isinstance(stop, ast.Name):
        bound = [
            node.value
            for node in function.nodes
            if isinstance(node, ast.Assign) and [source.text_of(one) for one in node.targets] == [stop.id]
        ]
        stop = bound[0] if len(bound) == 1 else stop
    match stop:
        case ast.Call(args=[_, size]) if called(stop) == "cdiv":
            return source.text_of(size)
    return ""


def _from_the_second(source: Source, function: Function) -> Iterator[Edit]:
    """Begin a loop one step later: what stands before it has done the first step."""
    for loop in (node for node in function.nodes if isinstance(node, ast.For)):
        match loop.iter:
            case ast.Call(args=[stop]) as call if called(call).endswith("range"):
                mistake = f"the loop over {quoted(source.text_of(call))} does again what is done before it"
                text = f"{source.text_of(call.func)}(1, {source.text_of(stop)})"
                yield Edit.of_node(source, 2, call, text, mistake)
            case ast.Call(args=[start, _, step]) as call if called(call).endswith("range"):
                text = f"{source.text_of(start)} + {source.text_of(step)}"
                mistake = f"the loop over {quoted(source.text_of(call))} does again what is done before it"
                yield Edit.of_node(source, 2, start, text, mistake)


def _left_behind(source: Source, function: Function) -> Iterator[Edit]:
    """Take the smaller of a block and what is left, `n - first`, where it is that of a block and of all."""
    kinds = kinds_of(function)
    indices = [name for name in function.stored if kinds.get(name) is Kind.INDEX]
    for node in function.nodes:
        if called(node) not in ("minimum", "min") or not isinstance(node, ast.Call) or not indices:
            continue
        for one in (arg for arg in node.args if isinstance(arg, ast.Name) and arg.id in function.parameters):
            for index in indices:
                mistake = (
                    f"`{one.id}` in {quoted(source.text_of(node))} is all there is, and not what is left"
                )
                yield Edit.of_node(source, 1, one, f"{one.id} - {index}", mistake)


def _ranges(function: Function) -> set[str]:
    """Return the names of index blocks that do not depend on a loop."""
    return {
        target.id
        for node in function.nodes
        if isinstance(node, ast.Assign) and "arange" in ast.unparse(node.value)
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def _is_moved(loop: ast.For, name: ast.Name, start: str) -> bool:
    """Return whether a name stands in a sum with the start of the block."""
    return any(
        isinstance(one, ast.BinOp)
        and isinstance(one.op, ast.Add)
        and name in ast.walk(one)
        and start in {other.id for other in names_in(one)}
        for one in ast.walk(loop)
    )


def _loaded_once(source: Source, function: Function, loops: list[ast.For]) -> Iterator[Edit]:
    """Load in each iteration, at the place of its block, what is loaded once before the loop."""
    every = list[Edit]()
    for node in function.nodes:
        match node:
            case ast.Assign([ast.Name(name)], ast.Call() as value):
                indices = [one for one in names_in(value) if one.id in _ranges(function)]
            case _:
                continue
        parts: dict[
            tuple[int, int], str
        ] = {}  # of loops in each other the inner one counts, which comes later
        for loop in (one for one in loops if one.lineno > node.lineno):
            assert isinstance(loop.target, ast.Name)
            places = [(source.span(one), f"({loop.target.id} + {one.id})") for one in indices]
            moved = source.with_replaced(places, within=source.span(value))
            uses = (one for part in loop.body for one in names_in(part))
            parts |= {
                source.span(one): moved for one in uses if one.id == name and isinstance(one.ctx, ast.Load)
            }
        if indices and parts and len(parts) <= MOST_PLACES:
            mistake = (
                f"{quoted(source.text_of(node))} is run once, before the loop, and loads its first block only"
            )
            every.append(Edit(1, node.lineno, mistake, tuple(parts.items())))
    yield from every
    if len(every) > 1:
        first, *others = every
        more = f" (and so in line{'s' * (len(others) > 1)} {', '.join(str(one.line) for one in others)})"
        parts_of_all = dict(part for one in every for part in one.parts)
        yield Edit(1, first.line, f"{first.mistake}{more}", tuple(parts_of_all.items()))


def _one_more_each(source: Source, function: Function) -> Iterator[Edit]:
    """Begin the share of a program behind those of the programs before it, of which some have one more."""
    for node in function.nodes:
        match node:
            case ast.Compare(ast.Name(program), [ast.Lt()], [ast.Name(rest)]):
                ahead = f"tl.minimum({program}, {rest})"
            case _:
                continue
        for product in function.nodes:
            match product:
                case ast.BinOp(ast.Name(name), ast.Mult(), ast.Name()) | ast.BinOp(
                    ast.Name(), ast.Mult(), ast.Name(name)
                ) if name == program:
                    code = quoted(source.text_of(product))
                    which = quoted(source.text_of(node))
                    mistake = f"{code} leaves out that programs before this one have one more, where {which}"
                    yield Edit.of_node(source, 1, product, f"({source.text_of(product)} + {ahead})", mistake)
                case ast.BinOp(ast.BinOp(op=ast.Mult()) as share, ast.Add(), ast.Name(added) as one) if (
                    added == rest and program in {inner.id for inner in names_in(share)}
                ):
                    mistake = (
                        f"{quoted(source.text_of(product))} goes `{rest}` further for every program, and "
                        "not one for each program before that has one more"
                    )
                    yield Edit.of_node(source, 1, one, ahead, mistake)
