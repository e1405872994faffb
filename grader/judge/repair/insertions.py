"""Edits that put something missing into an expression: a factor, a term, a function around it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import permutations
from typing import TypeGuard

from grader.judge.repair.edit import PARTIAL_BLOCK, Edit, quoted
from grader.judge.repair.kinds import WHOLE_KINDS, Kind, kinds_of, maxima, of_an_expression
from grader.judge.repair.operators import COMPARISONS
from grader.judge.repair.source import Function, Source, called, names_in, stored

FUNCTIONS = ("tl.exp", "tl.log", "tl.sqrt", "tl.rsqrt")
SIGNS = {
    "*": "the factor `{}` is missing in {}",
    "/": "{1} is not divided by `{0}`",
    "-": "`{}` is not subtracted in {}",
    "+": "`{}` is not added in {}",
}
LOG2_E = "1.4426950408889634"
OF_2 = ("exp2", "log2")
MOST_SENSIBLE = 1e20  # a larger number in a kernel stands for the largest of a dtype


def edits(source: Source, function: Function) -> Iterator[Edit]:
    """Yield every edit that inserts one factor, term or function into a kernel's arithmetic."""
    yield from _rounded_up(source, function)
    if not function.kernel:
        return
    kinds = kinds_of(function)
    yield from _shares_rounded_up(source, function, kinds)
    compared = {
        one.comparators[0].id
        for one in function.nodes
        if isinstance(one, ast.Compare) and isinstance(one.comparators[0], ast.Name)
    } - {*source.tuned}
    yield from _in_functions(source, function, kinds)
    yield from _in_terms(source, function, kinds)
    yield from _in_both_sides(source, function, kinds)
    yield from _rescaled_too(source, function)
    has_powers = any(called(one) in OF_2 for one in ast.walk(source.tree))
    for node, line in _places(source, function.node):
        if _is_a_bound(node, source.tree):
            continue
        code = source.text_of(node)
        bound = _bound_before(function, line)
        is_count = isinstance(node, ast.BinOp) and isinstance(node.op, ast.FloorDiv | ast.Mod)
        of = of_an_expression(node, kinds)
        if of in (Kind.POINTER, Kind.MASK):
            continue
        is_whole = is_count or of in WHOLE_KINDS
        likely = {*function.unused, *(_factors_of_divisor(function, node) if is_count else ())}
        for sign, words in SIGNS.items():
            if is_whole and sign == "/":
                continue
            for name in bound:
                kind = kinds.get(name)
                if name == code or kind not in (Kind.VALUE, Kind.SIZE, Kind.CONSTANT, None):
                    continue
                if kind in (Kind.SIZE, Kind.CONSTANT) and sign in "+-":
                    continue
                if is_whole and kind is Kind.VALUE and name not in function.parameters:
                    continue  # a real number, which is no part of a place
                if sign == "-" and is_whole and name in {one.id for one in names_in(node)}:
                    continue  # it would cancel out, and so only leave out what says where a program works
                if kind is Kind.CONSTANT and (sign != "*" or not is_count):
                    continue  # a block size is a factor of numbers of blocks alone
                product = sign == "*" and (kind is Kind.VALUE or is_count)
                mean = sign == "/" and (kind is Kind.SIZE or name in compared) and "sum" in code
                rank = 1 if name in likely or mean else 2 if product else 4
                yield Edit.of_node(
                    source, rank, node, f"(({code}) {sign} {name})", words.format(name, quoted(code))
                )
        if "sum" in {called(around) for around in function.nodes if _is_argument(node, around)}:
            for old, new in permutations(maxima(function), 2):
                mistake = f"{quoted(code)} is not rescaled before it is summed"
                for exp in ("tl.exp", "tl.exp2"):
                    yield Edit.of_node(source, 2, node, f"(({code}) * {exp}({old} - {new}))", mistake)
        for name in () if is_whole else source.numbers:
            mistake = f"the factor `{name}` is missing in {quoted(code)}"
            yield Edit.of_node(source, 1, node, f"(({code}) * {name})", mistake)
        for step in (name for name in bound if kinds.get(name) is Kind.STRIDE):
            if isinstance(node, ast.Name | ast.Constant) or kinds.get(code) is Kind.INDEX:
                mistake = f"{quoted(code)} is not multiplied by a stride"
                yield Edit.of_node(source, 2, node, f"(({code}) * {step})", mistake)
        if is_whole:
            continue  # what follows is of real numbers
        for name in ("1.0", LOG2_E):
            if name == "1.0":
                mistake = f"{quoted(code)} lacks a term of 1, or has the wrong sign"
                yield Edit.of_node(source, 5, node, f"(1.0 - ({code}))", mistake)
                yield Edit.of_node(source, 5, node, f"(1.0 + ({code}))", mistake)
            elif has_powers:
                mistake = f"{quoted(code)} is not converted to powers of 2"
                yield Edit.of_node(source, 5, node, f"(({code}) * {name})", mistake)
                yield Edit.of_node(source, 5, node, f"(({code}) / {name})", mistake)
        mistake = f"the sign of {quoted(code)} is wrong"
        yield Edit.of_node(source, 3, node, f"(-({code}))", mistake)
        for around in FUNCTIONS:
            mistake = f"a function such as `{around}` is missing around {quoted(code)}"
            yield Edit.of_node(source, 5, node, f"{around}({code})", mistake)
        mistake = f"what is below 0 is not set to 0 (ReLU) in {quoted(code)}"
        yield Edit.of_node(source, 4, node, f"tl.maximum({code}, 0.0)", mistake)


def _in_terms(source: Source, function: Function, kinds: dict[str, Kind]) -> Iterator[Edit]:
    """Put a factor or a divisor, a size or a value, to one term of a sum of real numbers, or to a choice."""
    real = (Kind.VALUE, Kind.CONSTANT)
    for whole in function.nodes:
        match whole:
            case ast.BinOp(left, ast.Add() | ast.Sub(), right) if (
                of_an_expression(whole, kinds) is Kind.VALUE
            ):
                terms = [left, right]
            case ast.Call(args=[_, left, right]) if called(whole) == "where":
                terms = [left, right]
            case _:
                continue
        assert isinstance(whole, ast.expr)
        if Kind.INDEX in (of_an_expression(one, kinds) for one in terms):
            continue  # a place, of which a part has a name that does not say so
        bound = _bound_before(function, whole.lineno)
        for term in terms:
            is_known = isinstance(term, ast.Name) and term.id in source.numbers
            if isinstance(term, ast.Constant) or not (is_known or of_an_expression(term, kinds) in real):
                continue
            code, around = source.text_of(term), quoted(source.text_of(whole))
            inside = {one.id for one in names_in(term)}
            for name in bound:
                is_size = kinds.get(name) is Kind.SIZE or (
                    kinds.get(name) is Kind.CONSTANT and name not in source.tuned
                )
                if name in inside or not (is_size or kinds.get(name) is Kind.VALUE):
                    continue
                missing = f"the factor `{name}` is missing in the term {quoted(code)} of {around}"
                yield Edit.of_node(source, 4, term, f"(({code}) * {name})", missing)
                divided = f"the term {quoted(code)} of {around} is not divided by `{name}`"
                yield Edit.of_node(source, 4, term, f"(({code}) / {name})", divided)


def _in_both_sides(source: Source, function: Function, kinds: dict[str, Kind]) -> Iterator[Edit]:
    """Compare places in a tensor, and not lanes of two blocks: where each block begins is added."""
    places = set[str]()  # a turn of a loop, or the number of a block times its size
    for node in function.nodes:
        match node:
            case ast.For(target=ast.Name(name)):
                places.add(name)
            case ast.Assign([ast.Name(name)], ast.BinOp(op=ast.Mult())) if kinds.get(name) is Kind.INDEX:
                places.add(name)
    named = dict[str, ast.Compare]()
    for node in function.nodes:
        match node:
            case ast.Assign([ast.Name(name)], ast.Compare() as compared):
                named[name] = compared
    for node in function.nodes:
        match node:
            case ast.Compare() as compared:
                pass
            case ast.Name(name, ast.Load()) if name in named:  # where it is read a loop may have begun
                compared = named[name]
            case _:
                continue
        sign = COMPARISONS.get(type(compared.ops[0]))
        sides = (compared.left, compared.comparators[0])
        if sign is None or not all(isinstance(one, ast.Subscript) for one in sides):
            continue  # numbers of two axes, such as rows[:, None] and cols[None, :]
        used = {one.id for one in names_in(compared)}
        begins = [
            name for name in _bound_before(function, node.lineno) if name in places and name not in used
        ]
        code, (one, other) = quoted(source.text_of(compared)), (source.text_of(side) for side in sides)
        for first, second in permutations(begins, 2):
            mistake = f"{code} compares lanes of two blocks, which begin at `{first}` and `{second}`"
            yield Edit.of_node(source, 3, node, f"(({one}) + {first} {sign} ({other}) + {second})", mistake)


def _in_functions(source: Source, function: Function, kinds: dict[str, Kind]) -> Iterator[Edit]:
    """Put a function around an operand: what a loop before it has summed, or a sum that is multiplied."""
    summed = [
        (loop.end_lineno or 0, name.id)
        for loop in function.nodes
        if isinstance(loop, ast.For | ast.While)
        for name in ast.walk(loop)
        if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store)
    ]
    for node in (one for one in function.nodes if isinstance(one, ast.BinOp)):
        for operand in (node.left, node.right):
            match operand:
                case ast.Name(name) if kinds.get(name) is Kind.VALUE:
                    fits = any(end < operand.lineno and name == one for end, one in summed)
                case ast.BinOp(op=ast.Add()):
                    fits = isinstance(node.op, ast.Mult | ast.Div)
                case _:
                    fits = False
            code = source.text_of(operand)
            for around in FUNCTIONS if fits else ():
                mistake = f"a function such as `{around}` is missing around {quoted(code)}"
                yield Edit.of_node(source, 5, operand, f"{around}({code})", mistake)


def _factors_of_divisor(function: Function, node: ast.expr) -> set[str]:
    """Return what the divisor was made of: `tile // in_group`, with `in_group = GROUP * n`, counts groups."""
    match node:
        case ast.BinOp(right=ast.Name(divisor)):
            made = [
                one.value
                for one in function.nodes
                if isinstance(one, ast.Assign) and _is_assigned(one, divisor)
            ]
            return {
                one.id
                for value in made
                if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Mult)
                for one in (value.left, value.right)
                if isinstance(one, ast.Name)
            }
    return set()


def _is_argument(node: ast.expr, call: ast.AST) -> bool:
    return isinstance(call, ast.Call) and node in call.args


def _rescaled_too(source: Source, function: Function) -> Iterator[Edit]:
    """Rescale a term to a maximum where the other term of the sum is: `d * exp(m - new) + block_sum`."""
    compared = [
        one.id
        for node in function.nodes
        if called(node) == "maximum" and isinstance(node, ast.Call)
        for one in node.args
        if isinstance(one, ast.Name)
    ]
    for node in function.nodes:
        if not (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add)):
            continue
        for term, other in ((node.left, node.right), (node.right, node.left)):
            if isinstance(other, ast.Name) and called(term) == "sum":
                mistake = f"`{other.id}` is not rescaled in {quoted(source.text_of(node))}"
                used = {f"tl.{called(one)}" for one in function.nodes if called(one) in ("exp", "exp2")}
                for old, new in permutations(maxima(function), 2):
                    for exp in sorted(used):
                        yield Edit.of_node(source, 1, other, f"({other.id} * {exp}({old} - {new}))", mistake)
            for exp, old, new in _factors(source, term):
                mistake = f"{quoted(source.text_of(other))} is not rescaled in {quoted(source.text_of(node))}"
                for name in dict.fromkeys((*compared, *maxima(function))):
                    if name not in (old, new):
                        text = f"(({source.text_of(other)}) * {exp}({name} - {new}))"
                        yield Edit.of_node(source, 1, other, text, mistake)


def _factors(source: Source, term: ast.expr) -> Iterator[tuple[str, str, str]]:
    """Yield the function and the two names of each factor exp(old - new) of a term."""
    for node in ast.walk(term):
        match node:
            case ast.Call(func, [ast.BinOp(ast.Name(old), ast.Sub(), ast.Name(new))]) if called(node) in (
                "exp",
                "exp2",
            ):
                yield source.text_of(func), old, new


def _is_a_bound(node: ast.expr, module: ast.Module) -> bool:
    """Return whether a number, or a constant of the module, is as large as its dtype permits.

    Nothing is missing in it, and with a factor it is out of range.
    """
    match node:
        case ast.Name(name):
            bound = [one.value for one in module.body if _is_assigned(one, name)]
            return any(_is_a_bound(one, module) for one in bound if not isinstance(one, ast.Name))
        case ast.Call(args=[inner]) if called(node) == "constexpr":
            return _is_a_bound(inner, module)
    value = node.operand if isinstance(node, ast.UnaryOp) else node
    number = value.value if isinstance(value, ast.Constant) else None
    return isinstance(number, int | float) and abs(number) > MOST_SENSIBLE


def _is_assigned(statement: ast.stmt, name: str) -> TypeGuard[ast.Assign]:
    match statement:
        case ast.Assign([ast.Name(target)]):
            return target == name
    return False


def _places(source: Source, function: ast.FunctionDef) -> Iterator[tuple[ast.expr, int]]:
    """Yield values of assignments, updates, stores and helpers, and what reductions and exp work on."""
    for node in ast.walk(function):
        match node:
            case ast.Assign([ast.Name()], value) | ast.AugAssign(value=value):
                if not isinstance(value, ast.Constant | ast.Compare | ast.Tuple):
                    yield value, node.lineno
            case ast.Return(ast.BinOp() | ast.UnaryOp() | ast.Call() as value):
                yield value, node.lineno
            case ast.Call() if (kept := stored(source, node)) is not None:
                yield kept, node.lineno
            case ast.Call(args=[value, *_]) if called(node) in ("sum", "exp", "exp2", "rsqrt", "sqrt", "log"):
                yield value, node.lineno


def _bound_before(function: Function, line: int) -> list[str]:
    names = {
        node.id
        for node in ast.walk(function.node)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.lineno <= line
    }
    return [
        name
        for name in (*function.parameters, *function.stored)
        if name in names or name in function.parameters
    ]


def _rounded_up(source: Source, function: Function) -> Iterator[Edit]:
    """Round a number of blocks up, where a division drops the last one, also in what bounds a grid."""
    heuristics = (node for one in function.node.decorator_list for node in ast.walk(one))
    body = (node for one in function.node.body for node in ast.walk(one))
    for host, nodes in ((not function.kernel, body), (True, heuristics)):
        module = "triton" if host else "tl"
        for node in nodes:
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.FloorDiv):
                left, right = source.text_of(node.left), source.text_of(node.right)
                mistake = f"{quoted(source.text_of(node))} {PARTIAL_BLOCK}"
                yield Edit.of_node(source, 0, node, f"{module}.cdiv({left}, {right})", mistake)


def _shares_rounded_up(source: Source, function: Function, kinds: dict[str, Kind]) -> Iterator[Edit]:
    """Round up the share of a program, which then ends where there is no more."""
    for node in function.nodes:
        match node:
            case ast.Assign([ast.Name(share)], ast.BinOp(ast.Name(size) as left, ast.FloorDiv(), right)) if (
                kinds.get(size) in (Kind.SIZE, Kind.CONSTANT)
            ):
                parts = [(source.span(node.value), f"tl.cdiv({left.id}, {source.text_of(right)})")]
                for other in function.nodes:
                    match other:
                        case ast.Assign([ast.Name()], ast.BinOp(one, ast.Add(), two) as end) if share in {
                            part.id for part in (one, two) if isinstance(part, ast.Name)
                        }:
                            parts.append((source.span(end), f"tl.minimum({source.text_of(end)}, {size})"))
                mistake = f"{quoted(source.text_of(node.value))} leaves out what is left over"
                yield Edit(1, node.lineno, mistake, tuple(parts))
