"""Edits of sums: a factor of one term, a term that counts too often, and digits that a sum loses."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from grader.judge.repair.edit import Edit, quoted
from grader.judge.repair.kinds import Kind, kinds_of
from grader.judge.repair.source import Function, Part, Source, called, names_in

LOGARITHMS = {"log": "exp", "log2": "exp2"}  # with what undoes them
ROOTS = {"rsqrt", "sqrt", "sqrt_rn"}


def edits(source: Source, function: Function) -> Iterator[Edit]:
    """Yield every edit that scales one term of a kernel's sums."""
    if not function.kernel:
        return
    kinds = kinds_of(function)
    yield from _added_too_early(source, function)
    yield from _added_too_often(source, function)
    yield from _added_to_each(source, function)
    yield from _factor_of_the_others(source, function)
    yield from _scaled_too_early(source, function)
    yield from _logarithm_of_a_sum(source, function)
    for node in function.nodes:
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
            yield from _moved(source, node)
            for term in (node.left, node.right):
                yield from _of_a_term(source, function, node, term, kinds)


def _moved(source: Source, node: ast.BinOp) -> Iterator[Edit]:
    """Let the factor of one term of a sum be that of the other."""
    sign = "+" if isinstance(node.op, ast.Add) else "-"
    for term, other in ((node.left, node.right), (node.right, node.left)):
        match term:
            case ast.BinOp(left, ast.Mult(), right):
                pass
            case _:
                continue
        for kept, factor in ((left, right), (right, left)):
            alone, scaled = source.text_of(kept), f"({source.text_of(other)}) * {source.text_of(factor)}"
            text = f"{alone} {sign} {scaled}" if term is node.left else f"{scaled} {sign} {alone}"
            mine, its = quoted(source.text_of(factor)), quoted(source.text_of(other))
            mistake = f"the factor {mine} belongs to {its}, and not to {quoted(alone)}"
            yield Edit.of_node(source, 1, node, f"({text})", mistake)


def _added_too_often(source: Source, function: Function) -> Iterator[Edit]:
    """Add a term behind a loop that adds it in each iteration, though it is the same in all."""
    for loop in (node for node in function.nodes if isinstance(node, ast.For)):
        bound = {one.id for one in names_in(loop) if isinstance(one.ctx, ast.Store)}
        end, indent = source.span(loop)[1], " " * loop.col_offset
        for node in loop.body:
            match node:
                case ast.AugAssign(ast.Name(name), ast.Add(), ast.BinOp(left, ast.Add(), right) as value):
                    pass
                case _:
                    continue
            for kept, term in ((left, right), (right, left)):
                if {one.id for one in names_in(term)} & bound:
                    continue
                added = source.text_of(term)
                mistake = f"{quoted(added)} is added in each iteration of the loop of line {loop.lineno}"
                behind = ((end, end), f"\n{indent}{name} += {added}")
                yield Edit(1, node.lineno, mistake, ((source.span(value), source.text_of(kept)), behind))


def _added_too_early(source: Source, function: Function) -> Iterator[Edit]:
    """Add a term behind what is made of the sum that has it, such as a bias behind a scale."""
    for node in function.nodes:
        match node:
            case ast.Assign([ast.Name(name)], ast.BinOp(rest, ast.Add(), term)):
                pass
            case _:
                continue
        for user in function.nodes:
            match user:
                case ast.Assign([ast.Name()], ast.BinOp() as value) | ast.Return(ast.BinOp() as value):
                    used = user.lineno > node.lineno and name in {one.id for one in names_in(value)}
                case _:
                    continue
            if used:
                added = source.text_of(term)
                whole = f"({source.text_of(value)}) + {added}"
                mistake = f"{quoted(added)} is a term of `{name}`, and must be added in line {user.lineno}"
                parts = (source.span(node.value), source.text_of(rest)), (source.span(value), whole)
                yield Edit(2, node.lineno, mistake, parts)


def _added_to_each(source: Source, function: Function) -> Iterator[Edit]:
    """Add a term to a sum along an axis, and not to each of the terms of that sum."""
    for call in function.nodes:
        if not isinstance(call, ast.Call) or called(call) != "sum" or not call.args:
            continue
        axes = [*call.args[1:2], *(one.value for one in call.keywords if one.arg == "axis")]
        summed, at = call.args[0], axes[0].value if axes and isinstance(axes[0], ast.Constant) else None
        places: list[tuple[ast.AST, ast.expr, list[Part]]] = []  # where a term is added, and what is left out
        match summed:
            case ast.BinOp(left, ast.Add(), right):
                for kept, term in ((left, right), (right, left)):
                    places.append((summed, term, [(source.span(summed), source.text_of(kept))]))
            case ast.Name(name):
                for node in function.nodes:
                    match node:
                        case ast.AugAssign(ast.Name(added), ast.Add(), term) if added == name:
                            places.append((node, term, [(source.span(node), "pass")]))
        for node, term, left_out in places:
            behind = _without_axis(source, term, at)
            if behind and isinstance(node, ast.expr | ast.stmt) and node.lineno <= call.lineno:
                code = quoted(source.text_of(term))
                mistake = (
                    f"{code} is added to every term of the sum of line {call.lineno}, and so counts often"
                )
                end = source.span(call)[1]
                yield Edit(1, node.lineno, mistake, (*left_out, ((end, end), f" + {behind}")))


def _without_axis(source: Source, term: ast.expr, axis: object) -> str:
    """Return a term without an axis that was made for it, as `bias[None, :]` has one; "" if it has more."""
    match term:
        case ast.Subscript(value, ast.Tuple(elts)) if isinstance(axis, int) and axis < len(elts):
            made, *rest = elts[axis], *elts[:axis], *elts[axis + 1 :]
            if not (isinstance(made, ast.Constant) and made.value is None):
                return ""
            axes = ", ".join(map(source.text_of, rest))
            return source.text_of(value) if len(rest) == 1 else f"{source.text_of(value)}[{axes}]"
        case ast.Name() | ast.Constant():
            return source.text_of(term)
    return ""


def _factor_of_the_others(source: Source, function: Function) -> Iterator[Edit]:
    """Scale one product of a sum twice by what the whole sum is multiplied with.

    As in the gradient of a norm, where one term has the normalised row in it, and with it the factor again.
    """
    for node in function.nodes:
        match node:
            case ast.BinOp(left, ast.Mult(), right):
                pass
            case _:
                continue
        for whole, factor in ((left, right), (right, left)):
            if not isinstance(factor, ast.Name | ast.Subscript):
                continue
            scale = source.text_of(factor)
            for term in _terms(whole):
                match term:
                    case ast.BinOp(op=ast.Mult()) if scale not in source.text_of(term):
                        of_all = f"{quoted(source.text_of(term))} of {quoted(source.text_of(whole))}"
                        mistake = f"the factor {quoted(scale)} is missing in the term {of_all}"
                        yield Edit.of_node(source, 1, term, f"({source.text_of(term)} * {scale})", mistake)


def _terms(node: ast.expr) -> list[ast.expr]:
    """Return the terms of a sum; none of what is no sum."""
    match node:
        case ast.BinOp(left, ast.Add() | ast.Sub(), right):
            return [*(_terms(left) or [left]), *(_terms(right) or [right])]
    return []


def _scaled_too_early(source: Source, function: Function) -> Iterator[Edit]:
    """Scale the difference from the maximum by log2(e), and not the numbers before it is subtracted.

    A product that is rounded loses, beside a large maximum, what the difference would have kept.
    """
    for node in function.nodes:
        match node:
            case ast.Assign([ast.Name()], ast.BinOp(value, ast.Mult(), factor) as product) | ast.Return(
                ast.BinOp(value, ast.Mult(), factor) as product
            ):
                pass
            case _:
                continue
        is_number = isinstance(factor, ast.Constant) and isinstance(factor.value, float)
        own = {*function.parameters, *function.stored}  # and no number of the module
        if not (is_number or (isinstance(factor, ast.Name) and factor.id not in own)):
            continue
        scale = source.text_of(factor)
        differences = [
            one.args[0]
            for of in source.functions.values()
            if of.kernel
            for one in of.nodes
            if isinstance(one, ast.Call)
            and called(one) == "exp2"
            and len(one.args) == 1
            and isinstance(one.args[0], ast.BinOp)
            and isinstance(one.args[0].op, ast.Sub)
        ]
        if differences:
            mistake = (
                f"{quoted(source.text_of(product))} is rounded before the maximum is subtracted, and loses "
                "digits of numbers far from 0"
            )
            scaled = [(source.span(one), f"({source.text_of(one)}) * {scale}") for one in differences]
            yield Edit(1, node.lineno, mistake, ((source.span(product), source.text_of(value)), *scaled))


def _logarithm_of_a_sum(source: Source, function: Function) -> Iterator[Edit]:
    """Divide by a sum in place of subtracting its logarithm, which loses its digits beside a maximum."""
    for node in function.nodes:
        match node:
            case ast.Assign([ast.Name(name)], ast.BinOp(top, ast.Add(), ast.Call(args=[total]) as log)) if (
                called(log) in LOGARITHMS
            ):
                pass
            case _:
                continue
        for call in function.nodes:
            match call:
                case ast.Call(args=[ast.BinOp(value, ast.Sub(), ast.Name(subtracted)) as difference]) if (
                    subtracted == name
                    and called(call) == LOGARITHMS[called(log)]
                    and call.lineno >= node.lineno
                ):
                    parts = (
                        (source.span(difference), f"{source.text_of(value)} - ({source.text_of(top)})"),
                        ((source.span(call)[1],) * 2, f" / ({source.text_of(total)})"),
                    )
                    code = quoted(source.text_of(node.value))
                    mistake = f"{code} loses the digits of its logarithm beside a number far from 0"
                    yield Edit(1, node.lineno, mistake, parts)


def _of_a_term(
    source: Source, function: Function, whole: ast.BinOp, term: ast.expr, kinds: dict[str, Kind]
) -> Iterator[Edit]:
    used = {one.id for one in names_in(term)}
    found = {kinds.get(name) for name in used}
    code, text = quoted(source.text_of(whole)), source.text_of(term)
    if Kind.VALUE in found or any(called(one) in ROOTS for one in ast.walk(term)):
        for name in _values(function, kinds, whole.lineno):
            mistake = f"the factor `{name}` is missing in the term {quoted(text)} of {code}"
            yield Edit.of_node(source, 3, term, f"(({text}) * {name})", mistake)
            if name in used or _is_a_root(function, name):
                yield Edit.of_node(source, 4, term, f"(({text}) * {name} * {name})", mistake)
        for name in function.parameters:
            if kinds.get(name) is Kind.SIZE and name not in used:
                mistake = f"the term {quoted(text)} of {code} is not divided by `{name}`"
                yield Edit.of_node(source, 3, term, f"(({text}) / {name})", mistake)
    elif _is_a_number_of_blocks(term, whole, kinds) and Kind.POINTER not in found:
        for name in function.parameters:
            if kinds.get(name) in (Kind.SIZE, Kind.CONSTANT) and name not in used:
                mistake = f"the factor `{name}` is missing in the term {quoted(text)} of {code}"
                yield Edit.of_node(source, 2, term, f"({text} * {name})", mistake)


def _is_a_number_of_blocks(term: ast.expr, whole: ast.BinOp, kinds: dict[str, Kind]) -> bool:
    """Return whether a term may lack the size of a block: a product, or an index that is subtracted."""
    match term:
        case ast.BinOp(op=ast.Mult()):
            return True
        case ast.Name(name):
            return isinstance(whole.op, ast.Sub) and kinds.get(name) is Kind.INDEX
    return False


def _values(function: Function, kinds: dict[str, Kind], line: int) -> list[str]:
    """Return the names that stand for values and are bound before a line, or are parameters."""
    stores = (one for one in names_in(function.node) if isinstance(one.ctx, ast.Store))
    bound = {one.id for one in stores if one.lineno < line}
    names = dict.fromkeys((*function.parameters, *function.stored))
    return [
        name for name in names
        if kinds.get(name) is Kind.VALUE and (name in bound or name in function.parameters)
    ]  # fmt: skip


def _is_a_root(function: Function, name: str) -> bool:
    """Return whether a name is assigned a square root, or one divided by it, or loaded as `rstd` is."""
    return "rstd" in name or any(
        isinstance(node, ast.Assign)
        and name in {one.id for target in node.targets for one in names_in(target)}
        and any(called(inner) in ROOTS for inner in ast.walk(node.value))
        for node in ast.walk(function.node)
    )
