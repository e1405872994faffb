"""Edits that let a loop update what it reads, as another loop or another line of the file updates its own."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import combinations, pairwise

from grader.judge.repair.edit import BEFORE, Edit, quoted
from grader.judge.repair.source import Function, Source, called, names_in


def edits(source: Source, function: Function) -> Iterator[Edit]:
    """Yield every edit that adds, at the end of a loop, the update of a name that the loop only reads."""
    if not function.kernel:
        return
    for block in _blocks(function):
        yield from _set_back(source, block)
        yield from _computed_again(source, block)
        yield from _as_in_another_block(source, block, function)
    loops = [node for node in function.nodes if isinstance(node, ast.For | ast.While)]
    updates = [found for loop in loops for found in map(_updated, loop.body) if found]
    for loop in loops:
        yield from _of_another_sum(source, loop, function)
        yield from _added_again(source, loop, function)
        bound = {one.id for one in names_in(loop) if isinstance(one.ctx, ast.Store)}
        own = [one for one in (*function.stored, *function.parameters) if one not in bound]
        read = {one.id for one in names_in(loop) if isinstance(one.ctx, ast.Load)}
        places = _places(loop)
        for name in dict.fromkeys(own):
            for statement, updated in updates:
                beside = name in places and updated in places  # as the one beside it is updated
                if name in read and (updated == name or beside):
                    yield _added(source, loop, statement, updated, name)
        yield from _values_of_before(source, loop)
    yield from _lanes_summed(source, function)


def _lanes_summed(source: Source, function: Function) -> Iterator[Edit]:
    """Sum up the lanes of a block to which a loop has added, where it is read behind the loop."""
    for node in function.nodes:
        match node:
            case ast.Assign([ast.Name(name)], ast.Call() as value) if called(value) in (
                "zeros",
                "zeros_like",
            ):
                pass
            case _:
                continue
        loops = [
            one
            for one in function.nodes
            if isinstance(one, ast.For | ast.While)
            and any(
                isinstance(each, ast.AugAssign) and source.text_of(each.target) == name
                for each in ast.walk(one)
            )
        ]
        end = min((one.end_lineno or one.lineno for one in loops), default=0)
        reduced = {
            id(inner)
            for one in function.nodes
            if isinstance(one, ast.Call) and called(one) in ("sum", "dot")
            for inner in ast.walk(one)
        }
        reads = [
            one
            for one in function.nodes
            if isinstance(one, ast.Name) and one.id == name and isinstance(one.ctx, ast.Load)
        ]
        behind = [one for one in reads if one.lineno > end and id(one) not in reduced]
        if end and behind:
            parts = tuple((source.span(one), f"tl.sum({name}, axis=0)") for one in behind)
            mistake = f"the lanes of `{name}` are not summed up behind the loop that adds to them"
            yield Edit(1, behind[0].lineno, mistake, parts)


def _blocks(function: Function) -> Iterator[list[ast.stmt]]:
    """Yield the statements that stand one under the other, of each body."""
    for node in (function.node, *function.nodes):
        match node:
            case ast.FunctionDef(body=body) | ast.With(body=body):
                yield body
            case ast.For(body=body, orelse=other) | ast.While(body=body, orelse=other):
                yield from filter(None, (body, other))
            case ast.If(body=body, orelse=other):
                yield from filter(None, (body, other))


def _set_back(source: Source, block: list[ast.stmt]) -> Iterator[Edit]:
    """Let pointers that one loop has moved start again where they were, before the next loop."""
    loops = [one for one in block if isinstance(one, ast.For | ast.While)]
    for first, later in combinations(loops, 2):
        moved = {
            one.target.id
            for one in ast.walk(first)
            if isinstance(one, ast.AugAssign) and isinstance(one.target, ast.Name)
        }
        between = block[block.index(first) + 1 : block.index(later)]
        bound = {name.id for one in between for name in names_in(one) if isinstance(name.ctx, ast.Store)}
        names = sorted((moved & _places(later)) - bound)
        if not names:
            continue
        parts = []
        for loop, text in ((first, "{0}{1} = {0}"), (later, "{0} = {0}{1}")):
            begin, indent = source.span(loop)[0], " " * loop.col_offset
            lines = "".join(f"{text.format(name, BEFORE)}\n{indent}" for name in names)
            parts.append(((begin, begin), lines))
        those = " and ".join(f"`{name}`" for name in names)
        verb, them = ("are", "them") if len(names) > 1 else ("is", "it")
        mistake = f"{those} {verb} not set back behind the loop of line {first.lineno}, which moves {them}"
        yield Edit(0, later.lineno, mistake, tuple(parts))


def _computed_again(source: Source, block: list[ast.stmt]) -> Iterator[Edit]:
    """Compute in a loop again what an earlier one computes in each iteration, and has left from its last."""
    loops = [one for one in block if isinstance(one, ast.For | ast.While)]
    for first, later in combinations(loops, 2):
        changing = {name.id for name in names_in(later) if isinstance(name.ctx, ast.Store)}
        for statement in first.body:
            match statement:
                case ast.Assign([ast.Name(name)], value):
                    read = {one.id for one in names_in(value)}
                case _:
                    continue
            if name in changing or name in read or not read & changing:
                continue
            use = next((one for one in later.body if name in {each.id for each in names_in(one)}), None)
            if use is not None:
                begin, indent = source.span(use)[0], " " * use.col_offset
                text = f"{source.text_of(statement)}\n{indent}"
                mistake = f"`{name}` is what the loop of line {first.lineno} has left from its last iteration"
                yield Edit(0, use.lineno, mistake, (((begin, begin), text),))


def _as_in_another_block(source: Source, block: list[ast.stmt], function: Function) -> Iterator[Edit]:
    """Let a statement follow another in one block as it does elsewhere, such as in the loop before."""
    texts = [source.text_of(one) for one in block]
    for other in _blocks(function):
        if other is block:
            continue
        for before, statement in pairwise(other):
            code = source.text_of(statement)
            if code in texts or not isinstance(statement, ast.Assign | ast.AugAssign | ast.Expr):
                continue
            if source.text_of(before) in texts:
                after = block[texts.index(source.text_of(before))]
                end, indent = source.span(after)[1], " " * after.col_offset
                mistake = (
                    f"{quoted(code)} is missing behind line {after.lineno}: line {statement.lineno} has it"
                )
                yield Edit(1, after.lineno, mistake, (((end, end), f"\n{indent}{code}"),))


def _of_another_sum(source: Source, loop: ast.For | ast.While, function: Function) -> Iterator[Edit]:
    """Add to the sum that a statement assigns, where it adds to another one."""
    before = {
        one.id
        for node in function.nodes
        if isinstance(node, ast.Assign) and node.lineno < loop.lineno
        for one in node.targets
        if isinstance(one, ast.Name)
    }
    for statement in loop.body:
        match statement:
            case ast.Assign([ast.Name(name)], ast.Call() as call) if called(call) == "dot":
                given = [*call.args[2:3], *(one.value for one in call.keywords if one.arg == "acc")]
            case ast.Assign([ast.Name(name)], ast.BinOp(left, ast.Add(), right)):
                given = [left, right]
            case _:
                continue
        if name in before and name not in {one.id for one in given if isinstance(one, ast.Name)}:
            for one in given:
                if isinstance(one, ast.Name) and one.id in before:
                    mistake = f"`{one.id}` is not the sum that {quoted(source.text_of(statement))} adds to"
                    yield Edit.of_node(source, 0, one, name, mistake)


def _added_again(source: Source, loop: ast.For | ast.While, function: Function) -> Iterator[Edit]:
    """Let a sum start with 0, or its loop with the second turn, where it starts with its first term."""
    added = {
        one.target.id
        for one in ast.walk(loop)
        if isinstance(one, ast.AugAssign) and isinstance(one.target, ast.Name) and isinstance(one.op, ast.Add)
    }
    for node in function.nodes:
        match node:
            case ast.Assign([ast.Name(name)], ast.Call() as first) if name in added:
                if node.lineno > loop.lineno or called(first) in ("zeros", "zeros_like", "full"):
                    continue
                code = source.text_of(first)
                again = {one.id for arg in first.args[:1] for one in names_in(arg)} & _places(loop)
                mistake = f"{quoted(name)} starts with {quoted(code)}, which the loop adds again"
                if not again:
                    mistake = f"{quoted(name)} starts with {quoted(code)}, and not with 0"
                yield Edit.of_node(source, 1, first, f"tl.zeros_like({code})", mistake)
                match loop:
                    case ast.For(iter=ast.Call(args=[stop]) as turns) if "range" in called(turns):
                        yield Edit.of_node(source, 1, stop, f"1, {source.text_of(stop)}", mistake)


def _places(loop: ast.For | ast.While) -> set[str]:
    """Return the names in what a loop loads from and stores to."""
    calls = (one for one in ast.walk(loop) if isinstance(one, ast.Call) and called(one) in ("load", "store"))
    return {name.id for call in calls for one in call.args[:1] for name in names_in(one)}


def _updated(statement: ast.stmt) -> tuple[ast.stmt, str] | None:
    """Return a statement with the name that it computes from its own earlier value."""
    match statement:
        case ast.AugAssign(ast.Name(name), _, _):
            return statement, name
        case ast.Assign([ast.Name(name)], value) if name in {one.id for one in names_in(value)}:
            return statement, name
    return None


def _values_of_before(source: Source, loop: ast.For | ast.While) -> Iterator[Edit]:
    """Read the value that a name had before its update, such as that of a maximum."""
    for found in map(_updated, loop.body):
        if found is None:
            continue
        update, name = found
        begin = source.span(update)[0]
        keep = ((begin, begin), f"{name}{BEFORE} = {name}\n{' ' * update.col_offset}")
        for later in (one for one in loop.body if one.lineno > (update.end_lineno or update.lineno)):
            for node in names_in(later):
                if node.id == name and isinstance(node.ctx, ast.Load):
                    code = quoted(source.text_of(later))
                    mistake = (
                        f"`{name}` has its new value in {code}, and not that of before line {update.lineno}"
                    )
                    yield Edit(1, node.lineno, mistake, (keep, (source.span(node), f"{name}{BEFORE}")))


def _added(source: Source, loop: ast.For | ast.While, statement: ast.stmt, updated: str, name: str) -> Edit:
    begin = source.span(statement)[0]
    spans = [source.span(one) for one in names_in(statement) if one.id == updated]
    parts = [((first - begin, last - begin), name) for first, last in spans]
    text = Source(source.text_of(statement)).with_replaced(parts)
    _, end = source.span(loop.body[-1])
    indent = " " * loop.body[0].col_offset
    how = "" if updated == name else f", as it does {quoted(updated)}"
    mistake = f"the loop reads `{name}` and does not update it{how}"
    return Edit(1 if updated == name else 2, loop.lineno, mistake, (((end, end), f"\n{indent}{text}"),))
