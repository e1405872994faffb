"""Edits of calls: another function in place of one, or a term that belongs inside or outside of the call."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from typing import TypeGuard

from grader.judge.repair.edit import PARTIAL_BLOCK, Edit, quoted
from grader.judge.repair.source import Function, Source, called, names_in

RESHAPES = {"reshape", "view"}
JOINING = {"reduce", "associative_scan"}
DOWN = {"round", "int", "floor", "trunc"}  # of a quotient: none of them rounds up
ONE_VALUE = {"maximum", "minimum", "max", "min", "exp", "exp2", "log", "sqrt", "rsqrt", "sigmoid", "abs"}


def edits(source: Source, function: Function) -> Iterator[Edit]:
    """Yield every edit that exchanges one call, or moves one term into or out of it."""
    module = "tl" if function.kernel else "triton"
    yield from _other_of_a_helper(source, function)
    yield from _results_that_are_lost(source, function)
    yield from _joined_in_turn(source, function)
    yield from _joined_again(source, function)
    yield from _other_side(source, function)
    yield from _advanced_to(source, function)
    yield from _moved_into_a_name(source, function)
    for node in function.nodes:
        match node:
            case ast.Call(args=[ast.expr() as value, *_]) if function.kernel and called(node) in RESHAPES:
                mistake = (
                    f"{quoted(source.text_of(node))} keeps the order of the elements: it transposes nothing"
                )
                yield Edit.of_node(source, 1, node, f"tl.trans({source.text_of(value)})", mistake)
            case ast.Call() if function.kernel and (limited := _limited(node)):
                code = quoted(source.text_of(limited))
                mistake = f"{quoted(source.text_of(node))} limits {code}, which has no limits"
                yield Edit.of_node(source, 1, node, f"({source.text_of(limited)})", mistake)
            case ast.Call(args=[ast.BinOp(left, ast.Div(), right)]) if called(node) in DOWN:
                mistake = f"{quoted(source.text_of(node))} {PARTIAL_BLOCK}"
                text = f"{module}.cdiv({source.text_of(left)}, {source.text_of(right)})"
                yield Edit.of_node(source, 0, node, text, mistake)
            case ast.BinOp(ast.Call() as call, ast.Add() | ast.Sub(), other):
                yield from _moved_in(source, node, call, other)
            case ast.Call(args=[ast.BinOp(left, ast.Add() | ast.Sub() | ast.Mult(), right), *_]) if (
                function.kernel
            ):
                yield from _moved_out(source, node, left, right)
                if isinstance(node.args[0], ast.BinOp) and isinstance(node.args[0].op, ast.Mult):
                    yield from _moved_out(source, node, right, left)


def _joined_in_turn(source: Source, function: Function) -> Iterator[Edit]:
    """Let a function that joins tuples take all values of one side, and then all of the other.

    So tl.reduce and tl.associative_scan hand them over; its own calls are changed alike.
    """
    for node in function.nodes if function.kernel else ():
        match node:
            case ast.Call(args=[ast.Tuple(blocks), *others], keywords=named) if called(node) in JOINING:
                given = [*others, *(one.value for one in named)]
            case _:
                continue
        names = [one.id for one in given if isinstance(one, ast.Name) and one.id in source.functions]
        for name in names:
            taken = source.functions[name].node.args.args
            if len(blocks) < 2 or len(taken) != 2 * len(blocks):
                continue
            calls = [
                one.args
                for other in source.functions.values()
                for one in ast.walk(other.node)
                if isinstance(one, ast.Call) and called(one) == name and len(one.args) == len(taken)
            ]
            listed: list[list[ast.arg] | list[ast.expr]] = [taken, *calls]
            parts = tuple(
                (source.span(here), source.text_of(there))
                for every in listed
                for here, there in zip(every, (*every[::2], *every[1::2]), strict=True)
                if here is not there
            )
            mistake = (
                f"`{name}` takes the two sides in turn, and {quoted(source.text_of(node.func))} hands over "
                "all values of one side before those of the other"
            )
            yield Edit(0, source.functions[name].node.lineno, mistake, parts)


def _joined_again(source: Source, function: Function) -> Iterator[Edit]:
    """Let a function that joins partial results add them alone: what it makes of each is made once before."""
    blocks = dict[str, list[ast.expr]]()  # that are reduced, by the function that joins
    for node in function.nodes if function.kernel else ():
        match node:
            case ast.Call(args=[block, *others], keywords=named) if called(node) in JOINING:
                for given in (*others, *(each.value for each in named)):
                    if isinstance(given, ast.Name) and given.id in source.functions:
                        blocks.setdefault(given.id, []).append(block)
    for name, reduced in blocks.items():
        joining = source.functions[name]
        match joining.parameters, joining.node.body[-1]:
            case [a, b], ast.Return(ast.BinOp(left, ast.Add(), right) as whole):
                of = [{name.id for name in names_in(side)} for side in (left, right)]
            case _:
                continue
        if of != [{a}, {b}] or isinstance(left, ast.Name) or isinstance(right, ast.Name):
            continue
        part, both = source.text_of(left), quoted(source.text_of(whole))
        parts = [(source.span(whole), f"({a} + {b})")]
        for block in reduced:
            made = re.sub(rf"\b{a}\b", f"({source.text_of(block)})", part)
            parts.append((source.span(block), f"({made})"))
        mistake = (
            f"`{name}` is called with what it has returned before, and {both} makes {quoted(part)} of it"
        )
        yield Edit(0, whole.lineno, f"{mistake} again", tuple(parts))


def _other_side(source: Source, function: Function) -> Iterator[Edit]:
    """Make of one side, in a sum of a function that joins two partial results, what it makes of the other."""
    joining = {
        one.id
        for node in function.nodes
        if function.kernel and isinstance(node, ast.Call) and called(node) in JOINING
        for one in (*node.args[1:], *(each.value for each in node.keywords))
        if isinstance(one, ast.Name) and one.id in source.functions
    }
    for name in sorted(joining):
        taken = source.functions[name].parameters
        half = len(taken) // 2
        other = dict(zip((*taken[:half], *taken[half:]), (*taken[half:], *taken[:half]), strict=True))
        for node in source.functions[name].nodes:
            if not (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add)):
                continue
            if not all({one.id for one in names_in(side)} & {*taken} for side in (node.left, node.right)):
                continue
            for like, wrong in ((node.left, node.right), (node.right, node.left)):
                text, code = _renamed(source.text_of(like), other), source.text_of(wrong)
                if text != code:
                    mistake = (
                        f"in {quoted(source.text_of(node))} the term {quoted(code)} is not made of its side "
                        f"as {quoted(source.text_of(like))} is made of the other"
                    )
                    yield Edit.of_node(source, 0, wrong, f"({text})", mistake)


def _renamed(text: str, names: Mapping[str, str]) -> str:
    """Return code with other names in place of some."""
    return re.sub(r"\w+", lambda one: names.get(one[0], one[0]), text)


def _advanced_to(source: Source, function: Function) -> Iterator[Edit]:
    """Advance block pointers by a block, and not to its place: an offset is added to the last one."""
    offsets = [
        (node, one)
        for node in function.nodes
        if isinstance(node, ast.Call) and called(node) == "advance"
        for given in node.args[-1:]
        for one in ast.walk(given)
        if isinstance(one, ast.Name)
    ]
    loops = {
        one.target.id
        for one in function.nodes
        if isinstance(one, ast.For) and isinstance(one.target, ast.Name)
    }
    for name in dict.fromkeys(one.id for _, one in offsets if one.id in loops):
        mine = [(node, one) for node, one in offsets if one.id == name]
        call = mine[0][0]
        mistake = f"{quoted(source.text_of(call))} adds `{name}` to where the block pointer is already"
        for size in sorted(function.constexprs):
            parts = tuple((source.span(one), size) for _, one in mine)
            yield Edit(0, call.lineno, mistake, parts)


def _moved_into_a_name(source: Source, function: Function) -> Iterator[Edit]:
    """`root = sqrt(x)`, and then `root + eps`, becomes `root = sqrt(x + eps)`, and then `root`."""
    for node in function.nodes if function.kernel else ():
        match node:
            case ast.BinOp(ast.Name(name) as kept, ast.Add() | ast.Sub() as operator, other):
                pass
            case _:
                continue
        made = [one for one in function.nodes if _is_made(one, name)]
        if len(made) != 1 or name in {one.id for one in names_in(other)}:
            continue
        call = made[0].value
        if node.lineno <= (made[0].end_lineno or 0):
            continue
        if not isinstance(call, ast.Call) or called(call) not in ONE_VALUE or not call.args:
            continue
        sign, code = "+" if isinstance(operator, ast.Add) else "-", source.text_of(other)
        mistake = f"{quoted(code)} stands outside of {quoted(source.text_of(call))}, and belongs inside"
        inside = f"({source.text_of(call.args[0])}) {sign} ({code})"
        parts = ((source.span(call.args[0]), inside), (source.span(node), source.text_of(kept)))
        yield Edit(1, node.lineno, mistake, parts)


def _is_made(node: ast.AST, name: str) -> TypeGuard[ast.Assign]:
    match node:
        case ast.Assign([ast.Name(target)]):
            return target == name
    return False


def _limited(node: ast.Call) -> ast.expr | None:
    """Return x of `minimum(maximum(x, low), high)` or `clamp(x, low, high)`; None for any other call."""
    match node:
        case ast.Call(args=[value, _, *_]) if called(node) == "clamp":
            return value
        case ast.Call(args=[ast.Call(args=[value, _]) as inner, _]):
            return value if {called(node), called(inner)} == {"minimum", "maximum"} else None
    return None


def _moved_in(source: Source, node: ast.BinOp, call: ast.Call, other: ast.expr) -> Iterator[Edit]:
    """f(a, b) + c becomes f(a + c, b)."""
    if called(call) not in ONE_VALUE or not call.args:
        return
    sign = "+" if isinstance(node.op, ast.Add) else "-"
    first, code = source.text_of(call.args[0]), source.text_of(other)
    (begin, end), (_, last) = source.span(call.args[0]), source.span(node)
    inside = source.between(end, source.span(call)[1])
    head = source.between(source.span(node)[0], begin)
    mistake = f"{quoted(code)} stands outside of {quoted(source.text_of(call))}, and belongs inside"
    parts = (((source.span(node)[0], last), f"{head}({first}) {sign} ({code}){inside}"),)
    yield Edit(1, node.lineno, mistake, parts)


def _moved_out(source: Source, node: ast.Call, left: ast.expr, right: ast.expr) -> Iterator[Edit]:
    """f(a + c, b) becomes f(a, b) + c, and f(a * c) becomes f(a) * c, also where the file has f."""
    whole = node.args[0]
    assert isinstance(whole, ast.BinOp)
    own = isinstance(whole.op, ast.Mult) and called(node) in source.functions
    if called(node) not in ONE_VALUE and not own:
        return
    sign = "*" if isinstance(whole.op, ast.Mult) else "+" if isinstance(whole.op, ast.Add) else "-"
    (first, _), (begin, end), (_, last) = source.span(node), source.span(whole), source.span(node)
    head, tail = source.between(first, begin), source.between(end, last)
    code = source.text_of(right)
    mistake = f"{quoted(code)} stands inside of {quoted(source.text_of(node))}, and belongs outside"
    text = f"({head}{source.text_of(left)}{tail} {sign} ({code}))"
    yield Edit.of_node(source, 3, node, text, mistake)


def _results_that_are_lost(source: Source, function: Function) -> Iterator[Edit]:
    """Hand back what a helper binds to one of its parameters: a name of its own, whatever it is called."""
    for node in function.nodes if function.kernel else ():
        match node:
            case ast.Expr(ast.Call(ast.Name(name), args) as call) if name in source.functions:
                helper = source.functions[name]
            case _:
                continue
        if any(isinstance(one, ast.Return) or called(one) == "store" for one in helper.nodes):
            continue
        last = helper.node.body[-1]
        bound = {one.id for one in names_in(helper.node) if isinstance(one.ctx, ast.Store)}
        for parameter, given in zip(helper.parameters, args, strict=False):
            if parameter in bound and isinstance(given, ast.Name):
                end = source.span(last)[1]
                back = f"\n{' ' * last.col_offset}return {parameter}"
                parts = (((end, end), back), (source.span(node), f"{given.id} = {source.text_of(call)}"))
                mistake = f"`{name}` has a new value for its own `{parameter}`, and does not return it"
                yield Edit(0, node.lineno, mistake, parts)


def _other_of_a_helper(source: Source, function: Function) -> Iterator[Edit]:
    """Give a helper that loads another value for what lies past the end than its default.

    Of a helper that another file gives only the name is known: there the parameter has its usual name.
    """
    for node in function.nodes if function.kernel else ():
        match node:
            case ast.Call(ast.Name(name), args, keywords):
                helper = source.functions.get(name)
            case _:
                continue
        if helper is None:
            others = {"other"} if "load" in name else set[str]()
        else:
            loads = (one for one in helper.nodes if isinstance(one, ast.Call) and called(one) == "load")
            values = [one.value for load in loads for one in load.keywords if one.arg == "other"]
            passed = {*helper.parameters[: len(args)]}
            others = {one.id for one in values if isinstance(one, ast.Name)} & {*helper.parameters} - passed
        for other in sorted(others - {one.arg for one in keywords}):
            text = source.text_of(node)[:-1].rstrip().rstrip(",")
            mistake = f"lanes past the end count in what is made of {quoted(source.text_of(node))}"
            for value in ("-float('inf')", "float('inf')", "1.0"):
                yield Edit.of_node(source, 0, node, f"{text}, {other}={value})", mistake)
