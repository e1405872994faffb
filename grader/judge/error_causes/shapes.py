"""Blocks whose shapes or dtypes do not go together, and the operands of tl.dot."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Mapping

from grader.judge.error_causes.failed import Failed, assigned, is_new_axis, short
from grader.judge.error_causes.origins import origin

_SHAPES = re.compile(r"incompatible dimensions at index (\d+): (\d+) and (\d+)")
UNLIKE = "two blocks do not go together"
REDUCING = {"sum", "max", "min", "argmax", "argmin", "reduce", "reshape"}
DEEPEST = 4  # assignments that are followed from a name to where its second axis comes from
TABLE = 2  # axes of a block of rows and columns
MOST_AXES = 3  # a larger number is no axis of a block
UNLIKE_IN_DOT = "`tl.dot(a, b)` needs"
_POINTERS = re.compile(r"Expected pointer argument to have shape \[(.*)\] but got \[(.*)\]")
_AXIS = re.compile(r"axis (-?\d+) (?:is )?out of (?:bounds|range)|invalid axis (-?\d+)")
_DTYPES = re.compile(r"[Bb]oth operands must be (?:the )?same d?type\.? Got (\S+) and (\S+)")
_LEAST = re.compile(r"[Ii]nput shapes should have M >= (\d+), N >= (\d+) and K >= (\d+)")


def shapes(failed: Failed) -> str | None:
    """Blocks whose shapes do not go together."""
    third = _third_axis(failed) if _has_a_third_axis(failed) else ""
    if third:
        return third
    found = _SHAPES.search(failed.text)
    if found and len({*failed.shapes.values()}) > 1:
        return f"{UNLIKE}: {_in_words(failed.shapes)}{_advice(failed)}"
    if found:
        sizes = f"one has {found[2]} elements along axis {found[1]}, the other {found[3]}"
        axis = "; for a table of all pairs give each a new axis, `[:, None]` and `[None, :]`"
        has = any(isinstance(one, ast.Constant) and one.value is None for one in failed.nodes(ast.Constant))
        return f"{UNLIKE}: {sizes}{'' if has else axis}"
    found = _POINTERS.search(failed.text)
    if found:
        one, other = (text.count(",") + 1 for text in (found[2], found[1]))
        if one != other:
            what = f"what is stored or loaded there has {_axes(other)}"
            return f"the block of pointers has {_axes(one)}, and {what}"
    if re.search(r"unsupported tensor index", failed.text):
        return (
            "a block cannot be indexed or cut by a slice: in its brackets stand only `None` and `:`; "
            "a part of it is loaded by its own pointers"
        )
    found = _AXIS.search(failed.text)
    if found:
        for node in failed.nodes(ast.Call) if int(found[1] or found[2]) > MOST_AXES else ():
            match node:
                case ast.Call(ast.Attribute(attr="min" | "max" as name), [_, second]):
                    if not isinstance(second, ast.Constant):
                        return (
                            f"`tl.{name}` reduces one block along an axis, which its second argument names: "
                            f"of two values `tl.{name}imum` takes one"
                        )
        return f"the block has no axis {found[1] or found[2]}: its axes are counted from 0"
    found = re.search(
        r"return_and_permute|[Cc]annot view|reshape\(\) cannot change total number of elements", failed.text
    )
    return "a reshape must keep the number of elements" if found else None


def _has_a_third_axis(failed: Failed) -> bool:
    """Return whether a block of the error has more than the two axes of a table."""
    found = _POINTERS.search(failed.text)
    axes = [text.count(",") + 1 for text in found.groups()] if found else []
    return max([*axes, *map(len, failed.shapes.values())], default=0) > TABLE


def _third_axis(failed: Failed) -> str:
    """Say which name has two axes already, where it is given a third one; "" if none has."""
    function = failed.function
    for node in ast.walk(function) if function else ():
        match node:
            case ast.Subscript(ast.Name(name), ast.Tuple(axes)) if any(map(is_new_axis, axes)):
                before = [one for one in assigned(function, name) if one.lineno < node.lineno]
            case _:
                continue
        value = max(before, key=_line, default=None)
        if function and value is not None and _has_two_axes(failed, function, value, DEEPEST):
            return (
                f"line {node.lineno}: `{name}` has two axes since line {value.lineno}, and "
                f"{short(node)} gives it a third"
            )
    return ""


def _has_two_axes(failed: Failed, function: ast.FunctionDef, value: ast.expr, depth: int) -> bool:
    """Return whether a part of a value, or of what it is made of, gets a second axis that no reduction takes.

    What is loaded has the axes of its pointers.
    """
    nodes = [*ast.walk(value)]
    reduced = any(isinstance(one, ast.Attribute) and one.attr in REDUCING for one in nodes)
    calls = [one.func.id for one in nodes if isinstance(one, ast.Call) and isinstance(one.func, ast.Name)]
    if reduced or any(map(failed.source.defined, calls)):
        return False
    if any(
        isinstance(one, ast.Subscript)
        and isinstance(one.slice, ast.Tuple)
        and len(one.slice.elts) == TABLE
        and any(map(is_new_axis, one.slice.elts))
        for one in nodes
    ):
        return True
    names = {one.id for one in nodes if isinstance(one, ast.Name)} if depth else ()
    made_of = [
        max((one for one in assigned(function, name) if one.lineno < value.lineno), key=_line, default=None)
        for name in names
    ]
    return any(one is not None and _has_two_axes(failed, function, one, depth - 1) for one in made_of)


def _line(node: ast.expr) -> int:
    return node.lineno


def _in_words(found: Mapping[str, tuple[int, ...]]) -> str:
    """Say which names have which shape: `a` and `b` have (4,), `c` has (4, 8)."""
    alike: dict[tuple[int, ...], list[str]] = {}
    for name, shape in found.items():
        if math.prod(shape) > 1:
            alike.setdefault(shape, []).append(f"`{name}`")
    told = [
        f"{' and '.join(names)} {'have' if len(names) > 1 else 'has'} the shape {shape}"
        for shape, names in alike.items()
    ]
    return ", ".join(told)


def _advice(failed: Failed) -> str:
    """Say which block lacks an axis, or has too many; first of two that stand in one operation."""
    found = failed.shapes
    named = [
        (one.id, other.id)
        for node in failed.nodes(ast.BinOp)
        if isinstance(node, ast.BinOp)
        for one, other in ((node.left, node.right), (node.right, node.left))
        if isinstance(one, ast.Name) and isinstance(other, ast.Name)
    ]
    named += [(one, other) for one in found for other in found]
    pairs = [(one, found[one], found[other]) for one, other in named if one in found and other in found]
    for name, shape, other in pairs:
        match shape, other:
            case (rows,), (first, last) if rows == first != last:
                return f"; `{name}[:, None]` has one number for each row"
    for name, shape, other in pairs:
        if len(other) < len(shape) and 1 not in shape and math.prod(shape) == math.prod(other):
            return f"; with `tl.reshape` the elements of `{name}` have the shape {other}"
    if all(len(shape) < 2 for shape in found.values()):
        return "; for a table of all pairs give each a new axis, `[:, None]` and `[None, :]`"
    return ""


def _axes(count: int) -> str:
    return "1 axis" if count == 1 else f"{count} axes"


def dot(failed: Failed) -> str | None:
    """The operands of tl.dot."""
    text = failed.text
    if re.search(r"equal reduction dimensions|must match for a valid dot|[Ff]irst input shape .*K", text):
        return f"{UNLIKE_IN_DOT} as many columns of `a` as rows of `b`"
    if re.search(r"accumulator shape is incompatible", text):
        number = _number_to_add_to(failed)
        if number:
            return (
                f"the accumulator of `tl.dot` is {number}, a number: it must be a block, such as "
                "`tl.zeros` of the rows of `a` and the columns of `b`"
            )
        made = _made_with(failed)
        return (
            "the accumulator of `tl.dot(a, b, acc)` must have as many rows as `a`, and as many columns as "
            f"`b`{made}"
        )
    if failed.kind == "AssertionError" and not text and _has_accumulator(failed):
        return (
            "the accumulator of `tl.dot` must have the dtype of its result, "
            "which is `tl.float32` unless `out_dtype` names another"
        )
    found = _DTYPES.search(text)
    if found:
        return f"`tl.dot` needs operands of one dtype, and gets {_operands(failed, found[1], found[2])}"
    found = _LEAST.search(text)
    if found:
        sides = zip("MNK", found.groups(), strict=True)
        least = [f"{side} of at least {size}" for side, size in sides if size != "1"]
        return f"`tl.dot` of an (M, K) and a (K, N) block needs {' and '.join(least)}"
    found = re.search(r"input_precision must be one of \((.+?)\)\. Got (\w+)", text)
    if found:
        known = ", ".join(f'"{one.strip(chr(39))}"' for one in found[1].split(", "))
        return f'`input_precision` has no value "{found[2]}"; it takes {known}'
    if re.search(r"unsupported operand type\(s\) for @|'MatMult' object", text) and failed.in_kernel:
        return "blocks have no operator `@`: their product is `tl.dot(a, b)`"
    return None


def _operands(failed: Failed, first: str, second: str) -> str:
    """Name the operands of the product with their dtypes, and where those come from."""
    products = [call for call in failed.calls() if ast.unparse(call.func) == "tl.dot" and len(call.args) > 1]
    if len(products) != 1 or not failed.in_kernel:
        return f"{first} and {second}"
    pairs = zip(products[0].args, (first, second), strict=False)
    told = [f"{dtype} in {short(operand)}{origin(failed, operand)}" for operand, dtype in pairs]
    return " and ".join(told)


def _number_to_add_to(failed: Failed) -> str:
    """Return the number that is handed to tl.dot as its accumulator, with its name; "" if it is a block."""
    for call in failed.calls():
        given = [*call.args[2:3], *(one.value for one in call.keywords if one.arg == "acc")]
        for one in given if ast.unparse(call.func) == "tl.dot" else ():
            values = [*assigned(failed.function, one.id)] if isinstance(one, ast.Name) else [one]
            for value in values:
                if isinstance(value, ast.Constant) and isinstance(value.value, int | float):
                    return (
                        f"`{ast.unparse(one)}`" if value is one else f"`{ast.unparse(one)} = {value.value}`"
                    )
    return ""


def _made_with(failed: Failed) -> str:
    """Say where the accumulator of a tl.dot comes from, and its shape if that was seen; "" if not known."""
    for call in failed.calls():
        given = [*call.args[2:3], *(one.value for one in call.keywords if one.arg == "acc")]
        for one in given if ast.unparse(call.func) == "tl.dot" else ():
            if not isinstance(one, ast.Name):
                return f"; it is {short(one)}"
            first = min(assigned(failed.function, one.id), key=_line, default=None)
            shape = failed.shapes.get(one.id)
            if first is not None and first.lineno < call.lineno:
                has = f" with the shape {shape}" if shape else ""
                return f"; line {first.lineno} makes `{one.id}` of {short(first)}{has}"
    return ""


def _has_accumulator(failed: Failed) -> bool:
    return failed.in_kernel and any(
        ast.unparse(call.func) == "tl.dot"
        and (len(call.args) > 2 or "acc" in [one.arg for one in call.keywords])
        for call in failed.calls()
    )


RULES = (shapes, dot)
