"""Edits of operators: comparisons, signs, exchanged operands, terms and factors too many."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import replace

from grader.judge.repair.edit import Edit, quoted, wrong_condition
from grader.judge.repair.kinds import Kind, kinds_of
from grader.judge.repair.source import Function, Source, called, names_in

COMPARISONS: dict[type[ast.cmpop], str] = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="}
LOOPS = (ast.For, ast.While)
NEXT_TO = ({"<", "<="}, {">", ">="})
OPERATORS: dict[type[ast.operator], str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%",
    ast.BitAnd: "&", ast.BitOr: "|",
}  # fmt: skip
OTHER_OPERATORS = {
    "+": ("-", "*"), "-": ("+",), "*": ("/", "+"), "/": ("*",),
    "//": ("%",), "%": ("//",), "&": ("|",), "|": ("&",),
}  # fmt: skip


def edits(source: Source, function: Function) -> Iterator[Edit]:
    """Yield every edit of one operator of a function."""
    kinds = kinds_of(function) if function.kernel else {}
    # Of a remainder that is compared it is asked whether it is 0.
    compared = {
        id(side)
        for node in function.nodes
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Eq | ast.NotEq)
        for side in (node.left, *node.comparators)
    }
    for node in function.nodes:
        if isinstance(node, ast.Compare):
            yield from _of_a_chain(source, node)
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            yield from _of_a_comparison(source, node, function)
        elif isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
            if not (isinstance(node.op, ast.Mod) and id(node) in compared):
                yield from _of_whole_blocks(source, node, OPERATORS[type(node.op)])
            yield from _of_an_operator(source, node)
            if function.kernel:
                yield from _of_a_square(source, node)
                yield from _of_a_mean(source, node, function)
                yield from _by_one(source, node, kinds)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            if not isinstance(node.operand, ast.Constant):
                mistake = f"the minus sign of {quoted(source.text_of(node))} does not belong there"
                yield Edit.of_node(source, 2, node, f"({source.text_of(node.operand)})", mistake)
        elif isinstance(node, ast.AugAssign) and type(node.op) in OPERATORS:
            yield from _of_an_update(source, node, function)


def _of_a_square(source: Source, node: ast.BinOp) -> Iterator[Edit]:
    """Compute a square in fp32: that of a number in fp16 may be infinite."""
    if isinstance(node.op, ast.Mult) and ast.dump(node.left) == ast.dump(node.right):
        code, one = quoted(source.text_of(node)), f"({source.text_of(node.left)}).to(tl.float32)"
        mistake = f"{code} is computed in the dtype of its operand, and in 16 bits squares may overflow"
        yield Edit.of_node(source, 1, node, f"({one} * {one})", mistake)


def _of_a_mean(source: Source, node: ast.BinOp, function: Function) -> Iterator[Edit]:
    """Divide by the number of elements that a loop or a mask counts, and not by the lanes of a block.

    Nor by one less, as an estimate of a variance does.
    """
    match node:
        case ast.BinOp(_, ast.Div(), ast.BinOp(ast.Name(whole), ast.Sub(), ast.Constant(1)) as divisor):
            mistake = f"{quoted(source.text_of(node))} divides by one less than the number of elements"
            yield Edit.of_node(source, 0, divisor, whole, mistake)
            return
        case ast.BinOp(_, ast.Div(), ast.Name(lanes) as divisor):
            blocks, ends = set[str](), list[ast.expr]()
        case _:
            return
    for one in function.nodes:
        match one:
            case ast.Call(args=[*_, last]) if called(one) == "arange":
                blocks |= {name.id for name in names_in(last)}
            case ast.Call(args=[end] | [_, end, *_]) if called(one) == "range":
                ends.append(end)
            case ast.Compare(_, [ast.Lt()], [end]):
                ends.append(end)
    for counted in dict.fromkeys(one.id for one in ends if isinstance(one, ast.Name)):
        if lanes in blocks and counted not in blocks:
            mistake = f"{quoted(source.text_of(node))} divides by the lanes of a block"
            yield Edit.of_node(source, 0, divisor, counted, mistake)


def _of_a_comparison(source: Source, node: ast.Compare, function: Function) -> Iterator[Edit]:
    sign = COMPARISONS.get(type(node.ops[0]))
    left, right = source.text_of(node.left), source.text_of(node.comparators[0])
    code = quoted(source.text_of(node))
    if sign is None:
        return
    for other in COMPARISONS.values():
        if other == sign:
            continue
        near = {sign, other} in NEXT_TO
        mistake = (
            f"the comparison {code} is wrong where both sides are equal"
            if near
            else f"the comparison {code} looks in the wrong direction"
        )
        if not function.kernel:
            edit = Edit.of_node(source, 2 if near else 3, node, f"({left}) {other} ({right})", mistake)
            yield replace(edit, mistake=wrong_condition(source.text_of(node)), detail=mistake)
            continue
        yield Edit.of_node(source, 0 if near else 1, node, f"({left}) {other} ({right})", mistake)
    for side in (node.left, node.comparators[0]) if function.kernel else ():
        if not isinstance(side, ast.Constant):
            mistake = f"the sign of {quoted(source.text_of(side))} in the comparison {code} is wrong"
            yield Edit.of_node(source, 3, side, f"(-({source.text_of(side)}))", mistake)


def _of_a_chain(source: Source, node: ast.Compare) -> Iterator[Edit]:
    """Join two comparisons by `&` where that joins what stands between them."""
    texts, sign = _joined_comparisons(source, node)
    if not texts:
        return
    code = quoted(source.text_of(node))
    mistake = f"`{sign}` binds tighter than the comparisons in {code}: each needs parentheses"
    yield Edit.of_node(source, 0, node, f"(({texts[0]}) {sign} ({texts[1]}))", mistake)


def _joined_comparisons(source: Source, node: ast.Compare) -> tuple[list[str], str]:
    """Return the texts of two comparisons that were meant and the sign that joins them, or nothing."""
    signs = [COMPARISONS.get(type(one)) for one in node.ops]
    if None in signs:
        return [], ""
    match node:
        case ast.Compare(left, [_, _], [ast.BinOp(inner, ast.BitAnd() | ast.BitOr() as join, outer), right]):
            pairs = [(left, signs[0], inner), (outer, signs[1], right)]
        case ast.Compare(
            ast.BinOp(ast.Compare() as whole, ast.BitAnd() | ast.BitOr() as join, outer), [_], [right]
        ):
            return [source.text_of(whole), _compared(source, outer, signs[0], right)], OPERATORS[type(join)]
        case ast.Compare(
            left, [_], [ast.BinOp(inner, ast.BitAnd() | ast.BitOr() as join, ast.Compare() as whole)]
        ):
            return [_compared(source, left, signs[0], inner), source.text_of(whole)], OPERATORS[type(join)]
        case _:
            return [], ""
    return [_compared(source, *pair) for pair in pairs], OPERATORS[type(join)]


def _compared(source: Source, left: ast.expr, sign: str | None, right: ast.expr) -> str:
    return f"{source.text_of(left)} {sign} {source.text_of(right)}"


def _of_an_operator(source: Source, node: ast.BinOp) -> Iterator[Edit]:
    sign = OPERATORS[type(node.op)]
    left, right = source.text_of(node.left), source.text_of(node.right)
    code = quoted(source.text_of(node))
    for other in OTHER_OPERATORS[sign]:
        if _is_neutral(node, other):
            continue  # the term or factor does not belong there, which another edit says
        if {sign, other} == {"*", "/"} and _is_of_a_difference(node.right):
            continue  # the difference has the wrong sign, which another edit says
        mistake = f"`{sign}` is the wrong operator in {code}"
        if {sign, other} == {"+", "-"}:
            mistake = f"the sign in {code} is wrong"
        fixed = [one for one in (node.right, node.left) if _is_a_constant(source, one)]
        if {sign, other} == {"*", "/"} and fixed:
            factor = quoted(source.text_of(fixed[0]))
            mistake = f"in {code} the factor {factor} is the inverse of the right one"
        yield Edit.of_node(source, 2 if sign == "*" else 1, node, f"(({left}) {other} ({right}))", mistake)
    match node:
        case ast.BinOp(ast.BinOp(whole, ast.FloorDiv(), size), ast.Mult(), again) if ast.dump(
            size
        ) == ast.dump(again):
            number, step = source.text_of(whole), quoted(source.text_of(size))
            mistake = f"{code} rounds {quoted(number)} down to a multiple of {step}"
            yield Edit.of_node(source, 0, node, f"({number})", mistake)
    match node:
        case ast.BinOp(ast.BinOp(a, ast.Mult(), b), ast.Add(), ast.BinOp(c, ast.Mult(), d)) if ast.dump(
            a
        ) == ast.dump(b) and ast.dump(c) == ast.dump(d):
            total = f"({source.text_of(a)} + {source.text_of(c)})"
            mistake = f"{code} adds the squares of the terms, and the square of their sum is another number"
            yield Edit.of_node(source, 1, node, f"({total} * {total})", mistake)
        case ast.BinOp(part, ast.Mult(), whole) | ast.BinOp(whole, ast.Mult(), part) if (
            isinstance(whole, ast.BinOp)
            and isinstance(whole.op, ast.Sub)
            and ast.dump(part) in (ast.dump(whole.left), ast.dump(whole.right))
        ):
            mistake = f"{code} is equal to a square on paper alone: it loses digits"
            square = f"(({source.text_of(whole)}) * ({source.text_of(whole)}))"
            yield Edit.of_node(source, 1, node, square, mistake)
    if sign in "-/" or sign in ("//", "%"):
        mistake = f"the operands of {code} are exchanged"
        # A sign that is turned elsewhere is more common, and often has the same effect.
        rank = 3 if sign == "-" else 1
        yield Edit.of_node(source, rank, node, f"(({right}) {sign} ({left}))", mistake)
    yield from _of_a_factor(source, node, sign)
    for kept, dropped in ((left, right), (right, left)):
        if sign == "&":
            mistake = f"the condition {quoted(dropped)} does not belong in {code}"
        elif sign in "+-":
            mistake = f"the term {quoted(dropped)} does not belong in {code}"
        elif sign == "*":
            mistake = f"the factor {quoted(dropped)} does not belong in {code}"
        elif kept == left:
            mistake = f"{code} is divided by {quoted(dropped)}, which does not belong there"
        else:
            continue
        yield Edit.of_node(source, 3, node, f"({kept})", mistake)


def _is_a_constant(source: Source, node: ast.expr) -> bool:
    """Return whether an expression is a number, or a constant of the module."""
    return isinstance(node, ast.Constant) or (
        isinstance(node, ast.Name)
        and any(
            isinstance(one, ast.Assign | ast.AnnAssign) and node.id in {name.id for name in names_in(one)}
            for one in source.tree.body
        )
    )


def _by_one(source: Source, node: ast.BinOp, kinds: Mapping[str, Kind]) -> Iterator[Edit]:
    """Add 1 to the difference of two counts, or take 1 away: the last of n things has number n - 1."""
    match node:
        case ast.BinOp(left, ast.Sub(), right) if all(
            isinstance(one, ast.Name | ast.Call) for one in (left, right)
        ):
            of_names = {kinds.get(one.id) for one in (left, right) if isinstance(one, ast.Name)}
            of_programs = {called(one) for one in (left, right)} & {"num_programs", "program_id"}
            if of_programs or of_names & {Kind.SIZE, Kind.INDEX}:
                code = source.text_of(node)
                for sign, words in (("-", "one too many"), ("+", "one too few")):
                    yield Edit.of_node(source, 1, node, f"({code} {sign} 1)", f"{quoted(code)} is {words}")


def _of_whole_blocks(source: Source, node: ast.BinOp, sign: str) -> Iterator[Edit]:
    """Count to the last element and not behind it: what divides evenly has its last block one earlier."""
    left, right = source.text_of(node.left), source.text_of(node.right)
    code = quoted(source.text_of(node))
    if sign == "//":
        mistake = f"{code} is one too many where {quoted(right)} divides {quoted(left)}"
        yield Edit.of_node(source, 3, node, f"((({left}) - 1) // ({right}))", mistake)
    elif sign == "%":
        mistake = f"{code} is 0, and not {quoted(right)}, where that divides {quoted(left)}"
        yield Edit.of_node(source, 1, node, f"((({left}) - 1) % ({right}) + 1)", mistake)


def _is_neutral(node: ast.BinOp, sign: str) -> bool:
    """Return whether an operand is a number that another operator would leave without effect."""
    either = [one.value for one in (node.left, node.right) if isinstance(one, ast.Constant)]
    right = [node.right.value] if isinstance(node.right, ast.Constant) else []
    return (sign == "*" and 1 in either) or (sign == "/" and 1 in right) or (sign in "+-" and 0 in either)


def _of_a_factor(source: Source, node: ast.BinOp, sign: str) -> Iterator[Edit]:
    """Let a factor or divisor hold for one term of a sum in place of both, or for both in place of one."""
    inner, outer = source.text_of(node.left), source.text_of(node.right)
    if sign == "/" or sign == "*":
        for total, factor in ((node.left, outer), (node.right, inner)):
            if isinstance(total, ast.BinOp) and isinstance(total.op, ast.Add | ast.Sub):
                if sign == "/" and total is node.right:
                    continue
                plus = OPERATORS[type(total.op)]
                one, other = source.text_of(total.left), source.text_of(total.right)
                verb = "multiplies" if sign == "*" else "divides"
                mistake = f"{quoted(factor)} {verb} both terms of {quoted(source.text_of(total))}"
                first = f"((({one}) {sign} ({factor})) {plus} ({other}))"
                yield Edit.of_node(source, 1, node, first, mistake)
                yield Edit.of_node(
                    source, 1, node, f"(({one}) {plus} (({other}) {sign} ({factor})))", mistake
                )
    match node:
        case ast.BinOp(
            ast.BinOp(a, ast.Mult(), b), ast.Mult(), ast.BinOp(c, ast.Add() | ast.Sub(), d) as total
        ):
            one, other, plus = source.text_of(c), source.text_of(d), OPERATORS[type(total.op)]
            for moved, rest in ((a, b), (b, a)):
                factor, kept = source.text_of(moved), source.text_of(rest)
                mistake = f"{quoted(factor)} multiplies both terms of {quoted(source.text_of(total))}"
                for inside in (
                    f"({one}) * ({factor}) {plus} ({other})",
                    f"({one}) {plus} ({other}) * ({factor})",
                ):
                    yield Edit.of_node(source, 1, node, f"(({kept}) * ({inside}))", mistake)
    if sign in "+-":
        for term, is_left in ((node.left, True), (node.right, False)):
            if isinstance(term, ast.BinOp) and isinstance(term.op, ast.Mult | ast.Div):
                one, other = source.text_of(term.left), source.text_of(term.right)
                scale = OPERATORS[type(term.op)]
                verb = "multiplies" if scale == "*" else "divides"
                whole = quoted(source.text_of(node))
                mistake = f"{quoted(other)} {verb} only one term of {whole}"
                both = f"(({one}) {sign} ({outer}))" if is_left else f"(({inner}) {sign} ({one}))"
                yield Edit.of_node(source, 2, node, f"({both} {scale} ({other}))", mistake)
                if scale == "*":
                    both = f"(({other}) {sign} ({outer}))" if is_left else f"(({inner}) {sign} ({other}))"
                    mistake = f"{quoted(one)} {verb} only one term of {whole}"
                    yield Edit.of_node(source, 2, node, f"({both} * ({one}))", mistake)


def _is_bound(name: str, loop: ast.AST, line: int) -> bool:
    """Return whether a name gets a value in an iteration of a loop before a line of it."""
    return any(
        isinstance(one, ast.Assign)
        and one.lineno < line
        and name in {each.id for target in one.targets for each in names_in(target)}
        for one in ast.walk(loop)
    )


def _begins_at_0(name: str, function: Function) -> bool:
    """Return whether a function binds a name to 0, or to a block of zeros."""
    for one in ast.walk(function.node):
        match one:
            case ast.Assign([ast.Name(bound)], ast.Constant(0)) if bound == name:
                return True
            case ast.Assign([ast.Name(bound)], ast.Call() as value) if bound == name:
                if called(value) in ("zeros", "zeros_like"):
                    return True
    return False


def _is_of_a_difference(node: ast.expr) -> bool:
    """Return whether a value is the exponential of a difference: its inverse has the terms exchanged."""
    return (
        isinstance(node, ast.Call)
        and called(node) in ("exp", "exp2")
        and any(isinstance(one, ast.BinOp) and isinstance(one.op, ast.Sub) for one in node.args)
    )


def _of_an_update(source: Source, node: ast.AugAssign, function: Function) -> Iterator[Edit]:
    sign, code = OPERATORS[type(node.op)], quoted(source.text_of(node))
    target, value = source.text_of(node.target), source.text_of(node.value)
    mistake = f"{code} keeps what earlier iterations have added to {quoted(target)}"
    around = [loop for loop in ast.walk(function.node) if isinstance(loop, LOOPS) and node in ast.walk(loop)]
    if not around or _is_bound(target, around[-1], node.lineno):
        mistake = f"what {quoted(target)} was before does not belong in {code}"
    if target in {source.text_of(one) for one in ast.walk(node.value) if isinstance(one, ast.Name)}:
        mistake = f"{code} adds {quoted(target)} twice"
    yield Edit.of_node(source, 2, node, f"{target} = {value}", mistake)
    for other in OTHER_OPERATORS[sign]:
        if other == "*" and _begins_at_0(target, function):
            continue  # it would stay 0, and only leave out what is made of it
        mistake = f"`{sign}=` is the wrong operator in {code}"
        yield Edit.of_node(source, 1, node, f"{target} {other}= {value}", mistake)
