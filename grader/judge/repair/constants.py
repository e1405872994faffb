"""Edits of numbers: another number, an argument in place of one, infinity in place of a large one."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations

from grader.judge.repair.edit import Edit, quoted, wrong_condition
from grader.judge.repair.host import never
from grader.judge.repair.source import Function, Source, called

WHOLE = {0: ("1",), 1: ("0", "2"), 2: ("1",)}
MOST_NEAR = 64  # of larger whole numbers no other one is tried
MOST_NUMBERS = 3  # in the definition of a constant
FLOATS = {0.0: ("1.0", "-float('inf')"), 1.0: ("0.0", "2.0"), 2.0: ("1.0",)}
SMALL = (1e-5, 1e-6, 1e-8, 1e-12)  # that are usual beside a square or a denominator
# Numbers of formulas, which are often written with too few digits, or with wrong ones.
KNOWN = {
    "log2(e)": 1.0 / math.log(2.0),
    "ln(2)": math.log(2.0),
    "log10(e)": math.log10(math.e),
    "sqrt(2)": math.sqrt(2.0),
    "1 / sqrt(2)": math.sqrt(0.5),
    "sqrt(2 / pi)": math.sqrt(2.0 / math.pi),
    "pi": math.pi,
    "e": math.e,
}
FEW_DIGITS, ENOUGH_DIGITS = 1e-2, 1e-7  # of such a number, by its relative error: as in 1.44, and as in fp32
LARGE = 1e3  # a number so far from 0 stands for infinity
INFINITE = "float('inf')"


def edits(source: Source, function: Function) -> Iterator[Edit]:
    """Yield every edit that puts another number, or an argument, in place of a number of a function."""
    unused = function.unused
    whole = {id(inner): node for node in ast.walk(function.node) for inner in ast.iter_child_nodes(node)}
    for node in function.nodes:
        if isinstance(node, ast.Constant):
            yield from _of_a_constant(source, function, node, whole.get(id(node), node), unused)
        elif function.kernel and isinstance(node, ast.Call) and called(node) == "zeros":
            yield from _from_minus_infinity(source, node)
        yield from _reciprocal(source, node)
    yield from _of_the_module(source, function)
    for decorator in function.node.decorator_list:
        for node in ast.walk(decorator):
            if isinstance(node, ast.Lambda) and len(node.args.args) == 1:
                yield from _of_a_heuristic(source, function, node.args.args[0].arg, node.body)
            elif isinstance(node, ast.Name) and node.id in source.functions:
                named = source.functions[node.id]
                for one in named.nodes if len(named.parameters) == 1 else ():
                    if isinstance(one, ast.Return) and one.value is not None:
                        yield from _of_a_heuristic(source, function, named.parameters[0], one.value)


def _of_a_constant(
    source: Source, function: Function, node: ast.Constant, around: ast.AST, unused: list[str]
) -> Iterator[Edit]:
    code = quoted(source.text_of(around if hasattr(around, "lineno") else node))
    if isinstance(node.value, bool):
        mistake = f"`{node.value}` is the wrong choice in {code}"
        yield Edit.of_node(source, 2, node, str(not node.value), mistake)
        return
    if not isinstance(node.value, int | float):
        return
    for name in unused:
        if name not in function.constexprs:
            mistake = f"{node.value} stands in {code}, and the argument `{name}` is not used"
            yield Edit.of_node(source, 1, node, name, mistake)
    if isinstance(around, ast.UnaryOp) and isinstance(around.op, ast.USub) and node.value >= LARGE:
        mistake = f"{code} is not low enough: numbers may be lower"
        yield Edit.of_node(source, 1, around, f"-{INFINITE}", mistake)
        return
    for name, known in KNOWN.items():
        if ENOUGH_DIGITS < abs(node.value / known - 1.0) < FEW_DIGITS:
            yield Edit.of_node(source, 0, node, repr(known), f"{node.value} is not {name} to all digits")
    if function.kernel and type(node.value) is int and node.value > 1:
        for name in sorted(function.constexprs):
            yield Edit.of_node(source, 3, node, name, f"{node.value} is the wrong number in {code}")
    match around:
        case ast.BinOp(_, ast.Mod(), right) if right is node and _is_power(node.value):
            mistake = f"{code} asks for multiples of {node.value}, and a whole block has more"
            blocks = [one for one in function.stored if "block" in one.lower()]
            names = () if function.kernel else (*function.constants, *blocks)
            for text in (*names, *(str(times * node.value) for times in (2, 4, 8))):
                yield Edit.of_node(source, 0, node, text, mistake)
    for other in _near(node.value):
        yield Edit.of_node(source, 3, node, other, f"{node.value} is the wrong number in {code}")


def _is_power(value: object) -> bool:
    return isinstance(value, int) and value > 1 and not value & (value - 1)


def _near(value: object) -> tuple[str, ...]:
    """Return the numbers for which a student may take this one."""
    if isinstance(value, int):
        if value in WHOLE or not 0 < value <= MOST_NEAR:
            return WHOLE.get(value, ())
        return tuple(map(str, (value - 1, value + 1, 2 * value, value // 2)))
    if isinstance(value, float) and value not in FLOATS:
        scaled = (repr(2.0 * value), repr(0.5 * value)) if math.frexp(value)[0] == 0.5 else ()
        if value >= LARGE:
            return (INFINITE, *scaled)
        if abs(value) <= 1 / LARGE:
            return ("0.0", *scaled, *(repr(one) for one in SMALL if one != value))
        return (repr(1.0 / value), repr(-value), "0.0", "1.0", *scaled)
    return FLOATS.get(value, ()) if isinstance(value, float) else ()


def _reciprocal(source: Source, node: ast.AST) -> Iterator[Edit]:
    """Divide 1 by a number that a function of math gives: ln 2 is taken for log2(e), and the other way."""
    match node:
        case ast.Call(ast.Attribute(ast.Name("math")), args) if args and not any(
            isinstance(one, ast.Name) and one.id != "math" for arg in args for one in ast.walk(arg)
        ):
            mistake = f"{quoted(source.text_of(node))} is the wrong number: it is 1 by the right one"
            yield Edit.of_node(source, 1, node, f"(1.0 / {source.text_of(node)})", mistake)


def _from_minus_infinity(source: Source, node: ast.Call) -> Iterator[Edit]:
    """Let a maximum begin at -inf."""
    if not node.args:
        return
    shape, *rest = map(source.text_of, (*node.args, *node.keywords))
    text = f"tl.full({', '.join((shape, f'-{INFINITE}', *rest))})"
    mistake = f"{quoted(source.text_of(node))} begins at 0, and what follows may be lower"
    yield Edit.of_node(source, 2, node, text, mistake)


def _of_the_module(source: Source, function: Function) -> Iterator[Edit]:
    """Put another number in the definition of a constant of the module that the function reads."""
    for node in source.tree.body:
        match node:
            case ast.Assign([ast.Name(name)], value) | ast.AnnAssign(ast.Name(name), _, ast.expr() as value):
                if name not in function.read:
                    continue
                for one in ast.walk(value):
                    yield from _reciprocal(source, one)
                numbers = [one for one in ast.walk(value) if isinstance(one, ast.Constant)]
                if len(numbers) > MOST_NUMBERS or not any(isinstance(one.value, float) for one in numbers):
                    continue
                decides = _only_decides(source, name)
                for number in numbers:
                    signs = (one for one in ast.walk(value) if isinstance(one, ast.UnaryOp))
                    signed = next((one for one in signs if one.operand is number), value)
                    for edit in _of_a_constant(source, function, number, signed, []):
                        yield edit.avoiding() if decides else edit


def _only_decides(source: Source, name: str) -> bool:
    """Return whether kernels only compare with a constant: another number may avoid what is wrong."""
    nodes = [node for one in source.functions.values() if one.kernel for node in ast.walk(one.node)]
    compared = {id(inner) for node in nodes if isinstance(node, ast.Compare) for inner in ast.walk(node)}
    read = [node for node in nodes if isinstance(node, ast.Name) and node.id == name]
    return bool(read) and all(id(node) in compared for node in read)


def _of_a_heuristic(source: Source, function: Function, taken: str, body: ast.expr) -> Iterator[Edit]:
    """Put a constant of the kernel in place of a number, or of another one, in what a heuristic computes.

    It computes `body` from the arguments of the launch, which it has `taken` by that name.
    """
    code = quoted(source.text_of(body))
    yield from never(source, body)
    moduli = (one for one in ast.walk(body) if isinstance(one, ast.BinOp) and isinstance(one.op, ast.Mod))
    divided = {id(one.right): id(one.left) for one in moduli}
    divisors, dividends = {*divided}, {*divided.values()}
    for inner in ast.walk(body):
        is_number = isinstance(inner, ast.Constant) and type(inner.value) is int and inner.value > 1
        match inner:
            case ast.Subscript(ast.Name(name), ast.Constant(str())) if name == taken:
                is_name = True
            case _:
                is_name = False
        if (is_number or is_name) and id(inner) not in dividends:
            # Another name in a condition often lets another part of the kernel run, which may hide a mistake.
            decides = is_name and isinstance(body, ast.Compare | ast.BoolOp)
            mistake = f"{quoted(source.text_of(inner))} is the wrong number in the heuristic {code}"
            if decides:
                mistake = f"the heuristic {wrong_condition(source.text_of(body))}"
            written = {f'{taken}["{other}"]': other for other in sorted(function.constexprs)}
            if id(inner) in divisors:  # a program may have several blocks
                written |= {f"({one} * {other})": "" for one, other in combinations([*written], 2)}
            for text, other in written.items():
                # A number of which something is a multiple is meant to be the size of a block.
                is_size = id(inner) in divisors and other.startswith("BLOCK")
                likely = bool(other) or source.text_of(inner) in text  # several blocks in place of one
                rank = 0 if is_size else 2 if decides or not likely else 1
                edit = Edit.of_node(source, rank, inner, text, mistake)  # type: ignore[arg-type]
                words = f"{quoted(source.text_of(inner))} is the wrong number in the heuristic {code}"
                yield replace(edit, detail=words) if decides else edit
