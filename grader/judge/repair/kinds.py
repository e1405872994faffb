"""What a name of a kernel stands for, as its text shows: pointer, stride, size, index, mask or value."""

from __future__ import annotations

import ast
import enum

from grader.judge.repair.launched import STRIDE
from grader.judge.repair.source import Function, called, names_in


class Kind(enum.Enum):
    """What a name stands for."""

    POINTER = "pointer"
    STRIDE = "stride"
    SIZE = "size"
    INDEX = "index"
    MASK = "mask"
    VALUE = "value"
    CONSTANT = "constant"


ARITHMETIC = {"exp", "exp2", "log", "log2", "sqrt", "rsqrt", "maximum", "minimum", "sum", "max", "min", "dot",
              "reduce", "associative_scan", "cumsum",
              "zeros", "full", "sigmoid", "rand", "fma", "abs", "where", "softmax"}  # fmt: skip
OF_REAL_NUMBERS = {"exp", "exp2", "log", "log2", "sqrt", "rsqrt", "sigmoid", "tanh", "erf", "dot"}
CHOOSING = {"minimum", "maximum", "min", "max"}  # of whole numbers they give a whole number
WHOLE_KINDS = {Kind.SIZE, Kind.INDEX, Kind.CONSTANT, Kind.STRIDE}
POINTERS = {"make_block_ptr", "make_tensor_descriptor", "advance"}
WHOLE = {"arange", "program_id", "num_programs", "cdiv", "multiple_of", "max_contiguous"}


def kinds_of(function: Function) -> dict[str, Kind]:
    """Return the kind of each name of a kernel that has one; of host code, of its parameters only."""
    found: dict[str, Kind] = dict.fromkeys(function.constants, Kind.CONSTANT)
    for name in function.parameters:
        found[name] = _of_a_parameter(name, function)
    if not function.kernel:
        return dict.fromkeys(function.parameters, Kind.POINTER)
    for _ in range(2):  # a name may be bound from one that is bound further down
        for node in ast.walk(function.node):
            match node:
                case ast.Assign([ast.Name(name)], value) | ast.AugAssign(ast.Name(name), _, value):
                    kind = of_an_expression(value, found)
                    if kind and (name not in found or found[name] is Kind.CONSTANT):
                        found[name] = kind
                case ast.Assign([ast.Tuple(targets)], ast.Tuple(values)):
                    for target, value in zip(targets, values, strict=False):
                        kind = of_an_expression(value, found)
                        if isinstance(target, ast.Name) and kind:
                            found.setdefault(target.id, kind)
                case ast.Assign([ast.Tuple(targets)], ast.Call(ast.Name(), args=given)):
                    if Kind.POINTER in {of_an_expression(one, found) for one in given}:
                        for one in targets:
                            if isinstance(one, ast.Name) and not _is_address(one.id, function):
                                found.setdefault(one.id, Kind.VALUE)
                case ast.For(target=ast.Name(name)):
                    found.setdefault(name, Kind.INDEX)
    return found


def _of_a_parameter(name: str, function: Function) -> Kind:
    low = name.lower()
    if name in function.constexprs:
        return Kind.CONSTANT
    if name in function.given:
        return Kind.STRIDE if function.given[name].what == STRIDE else Kind.SIZE
    if "ptr" in low or low.endswith("_desc"):
        return Kind.POINTER
    if "stride" in low:
        return Kind.STRIDE
    if _is_computed_with(name, function):
        return Kind.VALUE
    if (
        low.startswith(("n_", "num"))
        or len(low) == 1
        or low.endswith(("_n", "rows", "cols", "size", "numel"))
    ):
        return Kind.SIZE
    if _is_address(name, function) and len(low) <= 2:
        return Kind.POINTER
    return Kind.INDEX if _is_divided_whole(name, function) else Kind.VALUE


def _is_computed_with(name: str, function: Function) -> bool:
    """Return whether a function of real numbers, such as exp, is taken of a name, or of a sum with it."""
    for node in function.nodes:
        if isinstance(node, ast.Call) and called(node) in OF_REAL_NUMBERS:
            terms = [*node.args]
            while terms:
                match terms.pop():
                    case ast.Name(own) if own == name:
                        return True
                    case ast.BinOp(left, ast.Add() | ast.Sub(), right):
                        terms += left, right
    return False


def _is_divided_whole(name: str, function: Function) -> bool:
    """Return whether a function takes a name by a whole division, as the number of a tile."""
    return any(
        isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.FloorDiv | ast.Mod)
        and isinstance(node.left, ast.Name)
        and node.left.id == name
        for node in function.nodes
    )


def _is_address(name: str, function: Function) -> bool:
    """Return whether a load or a store of a kernel has a name in its address."""
    return any(
        isinstance(node, ast.Call) and called(node) in ("load", "store") and node.args
        and name in {one.id for one in names_in(node.args[0])}
        for node in ast.walk(function.node)
    )  # fmt: skip


def of_an_expression(node: ast.expr, known: dict[str, Kind]) -> Kind | None:
    """Return what an expression stands for, by the kinds of its names; None if that is not known."""
    match node:
        case ast.Compare() | ast.BoolOp():
            return Kind.MASK
        case ast.Constant(bool()):
            return Kind.MASK
        case ast.Constant(float()):
            return Kind.VALUE
        case ast.Constant(int()):
            return Kind.INDEX
        case ast.Name(name):
            return known.get(name)
        case ast.UnaryOp(operand=inner) | ast.Subscript(value=inner):
            return of_an_expression(inner, known)
        case ast.BinOp(left, operator, right):
            kinds = {of_an_expression(left, known), of_an_expression(right, known)}
            if Kind.POINTER in kinds:
                return Kind.POINTER
            if Kind.VALUE in kinds or isinstance(operator, ast.Div):
                return Kind.VALUE
            if Kind.MASK in kinds and isinstance(operator, ast.BitAnd | ast.BitOr):
                return Kind.MASK
            return Kind.INDEX if kinds - {None} else None
        case ast.Call():
            name = called(node)
            if name in POINTERS:
                return Kind.POINTER
            if name in CHOOSING:
                kinds = {of_an_expression(one, known) for one in node.args}
                return Kind.INDEX if kinds <= WHOLE_KINDS else Kind.VALUE
            if name == "load" or name in ARITHMETIC:
                return Kind.VALUE
            if name in WHOLE:
                return Kind.INDEX
            if name == "cast" and node.args:
                return of_an_expression(node.args[0], known)
            if name == "to" and isinstance(node.func, ast.Attribute):
                return of_an_expression(node.func.value, known)
    return None


def _begins_at_minus_infinity(value: ast.expr) -> bool:
    number = (
        value.args[1]
        if isinstance(value, ast.Call) and called(value) == "full" and len(value.args) > 1
        else value
    )
    return ast.unparse(number) in ("-float('inf')", "float('-inf')", "-math.inf")


def maxima(function: Function) -> list[str]:
    """Return the names that a maximum is assigned to."""
    found = [
        target.id
        for node in ast.walk(function.node)
        if isinstance(node, ast.Assign)
        and any(called(one) in ("max", "maximum") for one in ast.walk(node.value))
        for target in node.targets
        if isinstance(target, ast.Name)
    ]
    found += [  # what begins at -inf, and comes back from a function that the loop calls
        target.id
        for node in ast.walk(function.node)
        if isinstance(node, ast.Assign) and _begins_at_minus_infinity(node.value)
        for target in node.targets
        if isinstance(target, ast.Name) and target.id not in found
    ]
    # Where all is -inf, another number is subtracted.
    found += [
        target.id
        for node in ast.walk(function.node)
        if isinstance(node, ast.Assign) and called(node.value) == "where"
        and {one.id for one in names_in(node.value)} & {*found}
        for target in node.targets
        if isinstance(target, ast.Name)
    ]  # fmt: skip
    copies = [
        target.id
        for node in ast.walk(function.node)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Name) and node.value.id in found
        for target in node.targets
        if isinstance(target, ast.Name)
    ]
    return list(dict.fromkeys((*found, *copies)))


def exchangeable(one: Kind | None, other: Kind | None) -> bool:
    """Return whether a student may take a name of one kind for one of the other."""
    if one is None or other is None:
        return True
    return one is other or (one in WHOLE_KINDS and other in WHOLE_KINDS)
