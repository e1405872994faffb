"""Edits of whole statements: moved into or out of a loop, exchanged, overwritten sums, order of results."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterator, Sequence
from itertools import combinations, permutations, takewhile
from typing import TypeAlias

from grader.judge.repair.edit import BEFORE, OUT_OF_LOOP, SET_ONCE, Edit, quoted, wrong_condition
from grader.judge.repair.kinds import maxima
from grader.judge.repair.launched import kernel_of
from grader.judge.repair.source import ALLOCATING, Function, Source, called, is_start, names_in

Loop: TypeAlias = ast.For | ast.While
Block: TypeAlias = Loop | ast.If
MOST_RESULTS = 4
RESCALED = ("exp", "sum", "dot")  # in what is added to a sum that is relative to a maximum
FARTHEST = 3  # statements behind which one is moved


def edits(source: Source, function: Function) -> Iterator[Edit]:
    """Yield every edit of one statement of a function."""
    for body, block in _bodies(function.node):
        if function.kernel:
            yield from _set_anew(source, body)
        else:
            yield from _launched_first(source, function, body)
        if isinstance(block, Loop) and function.kernel:
            yield from _updates_to_the_other_end(source, body)
        for at, statement in enumerate(body):
            if statement in function.tuning:
                continue
            yield from _of_a_statement(source, statement, function, in_loop=isinstance(block, Loop))
            for other in body[at + 1 : at + 3]:
                yield from _values_exchanged(source, statement, other)
            if not isinstance(statement, ast.For | ast.While | ast.If):
                yield from _moved_down(source, function, body[at : at + 1 + FARTHEST])
            if isinstance(statement, ast.Expr) and called(statement.value) == "store":
                yield from _moved_up(source, body[max(0, at - FARTHEST - 1) : at + 1])
            if isinstance(block, Loop) and isinstance(statement, ast.AugAssign):
                yield from _to_the_other_end(source, statement, body)
            if block is not None:
                yield from _out_of(source, statement, block)
            if isinstance(block, Loop) and function.kernel:
                yield from _once_more(source, statement, block)
            if isinstance(statement, Block) and at + 1 < len(body):
                yield from _into(source, body[at + 1], statement)


def _bodies(node: ast.AST) -> Iterator[tuple[Sequence[ast.stmt], Block | None]]:
    """Yield each list of statements in a function, and the loop or the condition that it is the body of."""
    for one in ast.walk(node):
        if isinstance(one, ast.FunctionDef | Block):
            yield one.body, one if isinstance(one, Block) else None
        if isinstance(one, ast.If) and one.orelse:
            yield one.orelse, None


def _that_adds_to(name: str, statement: ast.stmt, function: Function) -> int | None:
    """Return the line of the last loop of a kernel that ends before a statement and updates a name."""
    found = None
    for loop in function.nodes:
        if not (function.kernel and isinstance(loop, ast.For | ast.While)):
            continue
        for node in ast.walk(loop):
            match node:
                case ast.AugAssign(ast.Name(target)):
                    updates = target == name
                case ast.Assign([ast.Name(target)], value):
                    updates = target == name and name in {one.id for one in names_in(value)}
                case _:
                    updates = False
            if updates and (loop.end_lineno or 0) < statement.lineno:
                found = loop.lineno
    return found


def _of_a_statement(source: Source, statement: ast.stmt, function: Function, in_loop: bool) -> Iterator[Edit]:
    code = quoted(source.text_of(statement))
    match statement:
        case ast.Assign([ast.Name(name)], value):
            loop = _that_adds_to(name, statement, function)
            what = "earlier iterations of the loop have" if in_loop else f"the loop of line {loop} has"
            if (in_loop or loop) and name not in {one.id for one in names_in(value)}:
                text = f"{name} += {source.text_of(value)}"
                mistake = f"{code} overwrites what {what} added to `{name}`"
                yield Edit.of_node(source, 0, statement, text, mistake)
        case ast.Assign([ast.Tuple(targets)], value) if len(targets) <= MOST_RESULTS:
            named = zip(map(source.text_of, targets), _returned_by(source, value), strict=False)
            in_order = {at for at, (name, result) in enumerate(named) if name == result}
            for (at, first), (later, second) in combinations(enumerate(targets), 2):
                if {at, later} <= in_order:  # both have the names that the function gives them
                    continue
                parts = ((source.span(first), source.text_of(second)),
                         (source.span(second), source.text_of(first)))  # fmt: skip
                yield Edit(1, statement.lineno, f"{code} takes values in the wrong order", parts)
        case ast.Return(ast.Tuple(parts)) if len(parts) <= MOST_RESULTS:
            for at in range(len(parts) - 1):
                texts = [source.text_of(part) for part in parts]
                texts[at], texts[at + 1] = texts[at + 1], texts[at]
                mistake = f"{code} returns its results in the wrong order"
                yield Edit.of_node(source, 1, statement, f"return {', '.join(texts)}", mistake)
        case ast.If(test):
            mistake = wrong_condition(source.text_of(test))
            for other in ("True", f"not ({source.text_of(test)})"):
                yield Edit.of_node(source, 3, test, other, mistake)
    yield from _rescaled(source, statement, function, in_loop)
    droppable = isinstance(statement, ast.AugAssign | ast.Expr | ast.If)
    rebound = isinstance(statement, ast.Assign) and _is_bound_before(statement, function)
    store = isinstance(statement, ast.Expr) and called(statement.value) == "store"
    text_only = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    if (droppable or rebound) and not store and not text_only:
        leaves = isinstance(statement, ast.If) and all(isinstance(one, ast.Return) for one in statement.body)
        rank = 0 if leaves and not function.kernel else 3
        yield Edit.of_node(source, rank, statement, "pass", f"{code} does not belong there")


def _returned_by(source: Source, value: ast.expr) -> list[str]:
    """Return the code of each result that a called function of the file returns last, if it has some."""
    function = source.functions.get(called(value)) if isinstance(value, ast.Call) else None
    if function is None:
        return []
    returned = [one.value for one in function.nodes if isinstance(one, ast.Return)]
    last = returned[-1] if returned else None
    return [source.text_of(one) for one in last.elts] if isinstance(last, ast.Tuple) else []


def _rescaled(source: Source, statement: ast.stmt, function: Function, in_loop: bool) -> Iterator[Edit]:
    """Rescale what was summed before, by the exponential of a difference of maxima."""
    if not function.kernel:
        return
    match statement:
        case ast.AugAssign(ast.Name(name), ast.Add(), value):
            added = source.text_of(value)
        case ast.Assign([ast.Name(name)], ast.BinOp(ast.Name(left), ast.Add(), right)) if left == name:
            added = source.text_of(right)
        case ast.Assign([ast.Name(name)], ast.BinOp(left, ast.Add(), ast.Name(right))) if right == name:
            added = source.text_of(left)
        case _:
            return
    if not any(word in added for word in RESCALED):
        return
    what = f"`{name}` of the earlier iterations" if in_loop else f"what `{name}` was before"
    mistake = f"{what} is not rescaled in {quoted(source.text_of(statement))}"
    for exp in ("tl.exp", "tl.exp2"):
        for old, new in permutations(maxima(function), 2):
            text = f"{name} = {name} * {exp}({old} - {new}) + {added}"
            yield Edit.of_node(source, 2, statement, text, mistake)
        for largest, raised in _raised(statement, function) if in_loop else ():
            # The maximum of before has no name of its own.
            old = f"{largest}{BEFORE}"
            kept = f"{old} = {largest}; {source.text_of(raised)}"
            for new in maxima(function):
                text = f"{name} = {name} * {exp}({old} - {new}) + {added}"
                parts = ((source.span(raised), kept), (source.span(statement), text))
                yield Edit(2, statement.lineno, mistake, parts)


def _raised(statement: ast.stmt, function: Function) -> Iterator[tuple[str, ast.Assign]]:
    """Yield each maximum that the same loop raises before a statement, and where it does."""
    around = [
        loop for loop in function.nodes if isinstance(loop, ast.For | ast.While) and statement in loop.body
    ]
    for one in (one for loop in around for one in loop.body):
        match one:
            case ast.Assign([ast.Name(name)], ast.Call() as value) if called(value) == "maximum":
                if name in {each.id for each in names_in(value)} and one.lineno < statement.lineno:
                    yield name, one


def _is_bound_before(statement: ast.Assign, function: Function) -> bool:
    targets = {one.id for target in statement.targets for one in names_in(target)}
    earlier = {
        one.id
        for one in names_in(function.node)
        if isinstance(one.ctx, ast.Store) and one.lineno < statement.lineno
    }
    return targets <= earlier | set(function.parameters)


def _moved_down(source: Source, function: Function, body: Sequence[ast.stmt]) -> Iterator[Edit]:
    """Let the first of some statements come behind each of the others."""
    first = source.text_of(body[0])
    if isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
        return  # a docstring
    for at, other in enumerate(body[1:], 1):
        if isinstance(other, ast.For | ast.While | ast.If | ast.Return | ast.FunctionDef):
            return
        texts = [*(source.text_of(one) for one in body[1 : at + 1]), first]
        if texts[0] == first:
            continue
        parts = tuple((source.span(one), text) for one, text in zip(body, texts, strict=False))
        mistake = f"{quoted(first)} comes before {quoted(texts[-2])}, which must come first"
        rank = (
            1 if at == 1 and (_is_completed(body[0], other) or _is_changed(body[0], other, function)) else 3
        )
        yield Edit(rank, body[0].lineno, mistake, parts)


def _is_changed(first: ast.stmt, second: ast.stmt, function: Function) -> bool:
    """Return whether a statement gives a name another value, and the next one reads it."""
    match first:
        case ast.Assign([ast.Name(name)]):
            read = {one.id for one in names_in(second) if isinstance(one.ctx, ast.Load)}
            return name in read and _is_bound_before(first, function)
    return False


def _is_completed(first: ast.stmt, second: ast.stmt) -> bool:
    """Return whether a statement makes something of a name that the one before it has read, as by a mask."""
    match second:
        case ast.Assign([ast.Name(name)], value) | ast.AugAssign(ast.Name(name), _, value):
            own = isinstance(second, ast.AugAssign) or name in {one.id for one in names_in(value)}
        case _:
            return False
    read = {one.id for one in names_in(first) if isinstance(one.ctx, ast.Load)}
    return own and name in read


def _moved_up(source: Source, body: Sequence[ast.stmt]) -> Iterator[Edit]:
    """Let a store, the last of some statements, come before two or more of the others."""
    *before, last = body
    code, here, indent = source.text_of(last), source.span(last), " " * last.col_offset
    for other in before[:-1]:
        if isinstance(other, ast.For | ast.While | ast.If | ast.FunctionDef):
            continue
        begin = source.span(other)[0]
        mistake = f"{quoted(code)} comes too late: line {other.lineno} has changed what it needs"
        yield Edit(2, last.lineno, mistake, (((begin, begin), f"{code}\n{indent}"), (here, "pass")))


def _launched_first(source: Source, function: Function, body: Sequence[ast.stmt]) -> Iterator[Edit]:
    """Launch a kernel before another one that has a tensor of the function in common with it."""
    launches = [
        (at, one)
        for at, one in enumerate(body)
        if isinstance(one, ast.Expr)
        and isinstance(one.value, ast.Call)
        and kernel_of(function.node, one.value, source.functions)
    ]
    for (at, first), (_, second) in combinations(launches, 2):
        earlier = {name.id for one in body[:at] for name in names_in(one) if isinstance(name.ctx, ast.Store)}
        later = {name.id for one in body[at:] for name in names_in(one) if isinstance(name.ctx, ast.Store)}
        used = {one.id for one in names_in(second)}
        shared = sorted(used & {one.id for one in names_in(first)} & earlier & _allocated(function))
        if shared and not used & later:
            begin, indent, code = source.span(first)[0], " " * first.col_offset, source.text_of(second)
            mistake = f"{quoted(code)} comes too late: line {first.lineno} uses `{shared[0]}` before it"
            yield Edit(
                0,
                second.lineno,
                mistake,
                (((begin, begin), f"{code}\n{indent}"), (source.span(second), "pass")),
            )


def _allocated(function: Function) -> set[str]:
    """Return the names that are bound to a tensor that the function makes."""
    return {
        name.id
        for node in function.nodes
        if isinstance(node, ast.Assign) and any(called(one) in ALLOCATING for one in ast.walk(node.value))
        for target in node.targets
        for name in names_in(target)
    }


def _to_the_other_end(source: Source, statement: ast.stmt, body: Sequence[ast.stmt]) -> Iterator[Edit]:
    """Let an update come behind all else in a loop, or before."""
    code, here, indent = source.text_of(statement), source.span(statement), " " * statement.col_offset
    (begin, _), (_, end) = source.span(body[0]), source.span(body[-1])
    if statement is not body[-1]:
        mistake = f"{quoted(code)} comes too early in the loop: it belongs at its end"
        yield Edit(2, statement.lineno, mistake, ((here, "pass"), ((end, end), f"\n{indent}{code}")))
    if statement is not body[0]:
        mistake = f"{quoted(code)} comes too late in the loop: it belongs at its beginning"
        yield Edit(2, statement.lineno, mistake, ((here, "pass"), ((begin, begin), f"{code}\n{indent}")))


def _updates_to_the_other_end(source: Source, body: Sequence[ast.stmt]) -> Iterator[Edit]:
    """Let several updates, with which a loop begins or ends, come at its other end together."""
    for part, rest, where in (
        ([*takewhile(_is_update, body)], "end", "early"),
        ([*takewhile(_is_update, reversed(body))][::-1], "beginning", "late"),
    ):
        if not 1 < len(part) < len(body):
            continue
        (begin, _), (_, end) = source.span(part[0]), source.span(part[-1])
        indent = " " * part[0].col_offset
        code = source.between(begin, end)
        to = source.span(body[-1])[1] if rest == "end" else source.span(body[0])[0]
        text = f"\n{indent}{code}" if rest == "end" else f"{code}\n{indent}"
        first, last = part[0].lineno, part[-1].lineno
        lines = f"the updates of lines {first} to {last}"
        mistake = f"{lines} come too {where} in the loop: they belong at its {rest}"
        yield Edit(1, first, mistake, (((begin, end), "pass"), ((to, to), text)))


def _is_update(node: ast.stmt) -> bool:
    return isinstance(node, ast.AugAssign)


def _values_exchanged(source: Source, one: ast.stmt, other: ast.stmt) -> Iterator[Edit]:
    """Exchange the values of two assignments, such as of the row and the column of a program."""
    match one, other:
        case ast.Assign([ast.Name(first)], left), ast.Assign([ast.Name(second)], right):
            reads = {node.id for node in names_in(right)}
            # With a start value in place of what is computed that would only be left out.
            alike = is_start(left) == is_start(right)
            if first != second and first not in reads and alike:
                parts = (source.span(left), source.text_of(right)), (source.span(right), source.text_of(left))
                mistake = f"`{first}` and `{second}` have each other's values"
                yield Edit(2, one.lineno, mistake, parts)


def _out_of(source: Source, statement: ast.stmt, block: Block) -> Iterator[Edit]:
    """Run a statement of a loop, or of a condition, before that or behind it."""
    if len(block.body) < 2:
        return
    code, indent = source.text_of(statement), " " * block.col_offset
    flat = textwrap.dedent(" " * statement.col_offset + code)
    moved = textwrap.indent(flat, indent)
    mistake = f"{quoted(code)} runs in each iteration of the loop of line {block.lineno}, {OUT_OF_LOOP}"
    if isinstance(block, ast.If):
        mistake = (
            f"{quoted(code)} runs only where {quoted(source.text_of(block.test))} holds, and must run always"
        )
    begin, end = source.span(block)
    here = source.span(statement)
    behind = ((here, "pass"), ((end, end), "\n" + moved)) if here[1] < end else ((here, "pass\n" + moved),)
    yield Edit(2, statement.lineno, mistake, behind)
    before = ((here, "pass"), ((begin, begin), f"{moved.lstrip()}\n{indent}"))
    yield Edit(2, statement.lineno, mistake, before)


def _once_more(source: Source, statement: ast.stmt, loop: Loop) -> Iterator[Edit]:
    """Run an update of a loop once more behind it, for what the last iteration has loaded."""
    match statement:
        case ast.Assign([ast.Name(name)], value) if name in {one.id for one in names_in(value)}:
            pass
        case ast.AugAssign(ast.Name()) | ast.Expr(ast.Call()):
            pass
        case _:
            return
    code, indent = source.text_of(statement), " " * loop.col_offset
    again = textwrap.indent(textwrap.dedent(" " * statement.col_offset + code), indent)
    end = source.span(loop)[1]
    mistake = f"{quoted(code)} is not run once more behind the loop of line {loop.lineno}"
    yield Edit(2, statement.lineno, mistake, (((end, end), "\n" + again),))


def _set_anew(source: Source, body: Sequence[ast.stmt]) -> Iterator[Edit]:
    """Set a name again that a loop changes, or that is made of what it changes: in each iteration.

    What it changes also before a later loop.
    """
    for at, loop in enumerate(body):
        if not isinstance(loop, Loop):
            continue
        changed = dict.fromkeys(one.id for one in names_in(loop) if isinstance(one.ctx, ast.Store))
        begin, indent = source.span(loop)[0], " " * loop.col_offset
        for before in body[:at]:
            match before:
                case ast.Assign([ast.Name(name)], value) if (
                    name in changed
                    or any(one.id in changed for one in names_in(value))  # as a mask of offsets that move on
                ) and _is_used(loop, name):
                    first, code = loop.body[0], source.text_of(before)
                    once = f"{quoted(code)} is {SET_ONCE} of line {loop.lineno}"
                    mistake = f"{once}, and must be set in each iteration"
                    start = source.span(first)[0]
                    again = f"{code}\n{' ' * first.col_offset}"
                    yield Edit(1, before.lineno, mistake, (((start, start), again),))
                    yield from _set_anew_where(source, before, loop)
        yield from _all_set_anew(source, body[:at], loop)
        for later in (one for one in body[at + 1 :] if isinstance(one, Loop)):
            # What a later loop only reads, such as a sum, would be left out and not begun anew.
            goes_on = {one.id for one in names_in(later) if isinstance(one.ctx, ast.Store)}
            for name in (one for one in changed if one in goes_on):
                kept, start = f"first_{name}", source.span(later)[0]
                mistake = (
                    f"`{name}` goes on where the loop of line {loop.lineno} has left it, and must begin anew"
                )
                parts = (
                    ((begin, begin), f"{kept} = {name}\n{indent}"),
                    ((start, start), f"{name} = {kept}\n{' ' * later.col_offset}"),
                )
                yield Edit(1, later.lineno, mistake, parts)


def _is_used(loop: Loop, name: str) -> bool:
    """Return whether a loop reads a name for more than to change it: else a sum is complete behind it."""
    changing = [
        node
        for node in ast.walk(loop)
        if isinstance(node, ast.Assign | ast.AugAssign)
        and any(one.id == name and isinstance(one.ctx, ast.Store) for one in names_in(node))
    ]
    own = {id(one) for node in changing for one in names_in(node)}
    return any(one.id == name and id(one) not in own for one in names_in(loop))


def _set_anew_where(source: Source, before: ast.stmt, loop: Loop) -> Iterator[Edit]:
    """Set a name anew at the end of what a loop does under a condition, as with a tile that is complete."""
    for block in (one for one in loop.body if isinstance(one, ast.If) and not one.orelse):
        code, last = source.text_of(before), block.body[-1]
        mistake = (
            f"{quoted(code)} is {SET_ONCE} of line {loop.lineno}, and must be set anew behind line "
            f"{last.end_lineno}"
        )
        end = source.span(last)[1]
        yield Edit(1, before.lineno, mistake, (((end, end), f"\n{' ' * last.col_offset}{code}"),))


def _all_set_anew(source: Source, before: Sequence[ast.stmt], loop: Loop) -> Iterator[Edit]:
    """Set all that the loops in a loop go on with in each of its iterations, where that is more than one."""
    inner = [node for node in ast.walk(loop) if isinstance(node, Loop) and node is not loop]
    carried = {one.id for each in inner for one in names_in(each) if isinstance(one.ctx, ast.Store)}
    within = {id(one) for each in inner for one in names_in(each)}
    own = {one.id for one in names_in(loop) if isinstance(one.ctx, ast.Store) and id(one) not in within}
    starts: dict[str, ast.stmt] = {}
    for statement in before:
        match statement:
            case ast.Assign([ast.Name(name)], _) if name in carried - own:
                starts[name] = statement
    if len(starts) < 2:
        return
    start, indent = source.span(loop.body[0])[0], " " * loop.body[0].col_offset
    again = "".join(f"{source.text_of(one)}\n{indent}" for one in starts.values())
    names = " and ".join(f"`{name}`" for name in starts)
    mistake = f"{names} are {SET_ONCE} of line {loop.lineno}, and must be set in each iteration"
    line = min(one.lineno for one in starts.values())
    yield Edit(2, line, mistake, (((start, start), again),))


def _into(source: Source, statement: ast.stmt, block: Block) -> Iterator[Edit]:
    """Run the statement behind a loop, or behind a condition, in it."""
    stays = isinstance(statement, ast.For | ast.While | ast.Return | ast.FunctionDef)
    if stays or (isinstance(block, ast.If) and block.orelse):
        return
    code = source.text_of(statement)
    flat = textwrap.dedent(" " * statement.col_offset + code)
    moved = textwrap.indent(flat, " " * block.body[0].col_offset)
    end = source.span(block)[1]
    mistake = f"{quoted(code)} is run once, behind the loop of line {block.lineno}, and must be in it"
    if isinstance(block, ast.If):
        test = quoted(source.text_of(block.test))
        mistake = f"{quoted(code)} runs whether {test} holds or not, and must run only where it holds"
    yield Edit(2, statement.lineno, mistake, (((end, end), "\n" + moved), (source.span(statement), "pass")))
