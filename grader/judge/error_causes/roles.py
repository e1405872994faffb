"""Arguments and results that stand in the place of others: a value for a mask, a number for a pointer."""

from __future__ import annotations

import ast
import re

from grader.judge.error_causes.failed import Failed, assigned, constants, parameters, short

_MASK = re.compile(r"[Mm]ask must have boolean scalar type|[Mm]ask argument .*(?:bool|int1)")
_AXIS = re.compile(
    r"[Aa]xis|convert float|__index__|constexpr|reduce|truth value|only integer|has no attribute|unhashable"
)
_NO_TENSOR = re.compile(
    r"'(int|float|bool)' object has no attribute '(?:dtype|shape|stride|device|numel|data_ptr)'"
)
_PAIRED = {"max": "maximum", "min": "minimum"}
_REDUCTIONS = ("max", "min", "sum", "argmax", "argmin")


def mask(failed: Failed) -> str | None:
    """A value where a load or a store takes its mask."""
    if not _MASK.search(failed.text):
        return None
    for call in failed.calls():
        name = _of_triton(call)
        if name not in ("load", "store"):
            continue
        place = 1 if name == "load" else 2
        given = {one.arg: one.value for one in call.keywords}
        own = given.get("mask") or (call.args[place] if len(call.args) > place else None)
        value = given.get("value") or (call.args[1] if len(call.args) > 1 else None)
        if own is None:
            continue
        if name == "store" and value is not None and _is_condition(failed, value):
            return (
                f"`tl.store` takes the value and then the mask: {short(value)} and {short(own)} are exchanged"
            )
        what = "second" if name == "load" else "third"
        place_words = "" if "mask" in given else f", its {what} argument,"
        return f"the mask of `tl.{name}`{place_words} is {short(own)}, and that is no condition"
    return None


def reduced(failed: Failed) -> str | None:
    """Two values for a function that reduces one block along an axis."""
    if not failed.in_kernel or not _AXIS.search(failed.text):
        return None
    for call in failed.calls():
        name = _of_triton(call)
        if name in _REDUCTIONS and len(call.args) > 1 and _is_value(failed, call.args[1]):
            words = (
                f"`tl.{name}` reduces one block along an axis, and {short(call.args[1])} stands for the axis"
            )
            return f"{words}: `tl.{_PAIRED[name]}` takes two values" if name in _PAIRED else words
    return None


def shifted(failed: Failed) -> str | None:
    """A launch that passes a number where the kernel has a pointer, because it leaves one argument out."""
    launch = failed.launch()
    if not _NO_TENSOR.search(failed.text) or launch is None:
        return None
    kernel, call = launch
    plain = [one for one in parameters(kernel) if one not in constants(kernel)]
    named = {one.arg for one in call.keywords}
    if any(isinstance(one, ast.Starred) for one in call.args) or None in named:
        return None
    expected = [one for one in plain if one not in named]
    host = failed.source.function(call.lineno)
    for name, value in zip(expected, call.args, strict=False):
        if "ptr" in name.lower() and is_number(value, host):
            given = f"{len(call.args)} of {len(expected)}"
            count = f": {given} arguments are passed" if len(call.args) < len(expected) else ""
            return f"the launch passes {short(value)}, a number, for the pointer `{name}`{count}"
    return None


def unpacked(failed: Failed) -> str | None:
    """Results of a function of the file that are unpacked in another order than it returns them."""
    if not failed.in_kernel or not re.search(r"incompatible|shape|rank|type", failed.text):
        return None
    for function in failed.own_functions:
        for node in ast.walk(function):
            match node:
                case ast.Assign([ast.Tuple(targets)], ast.Call(ast.Name(name))):
                    own = failed.source.defined(name)
                    returned = _returned(own) if own else []
                    found = [one.id for one in targets if isinstance(one, ast.Name)]
                    given = [one for parts in returned for one in parts]
                    if (
                        len(found) == len(targets)
                        and any(_crossed(found, parts) for parts in returned)
                        and given
                    ):
                        parts = next(parts for parts in returned if _crossed(found, parts))
                        return (
                            f"line {node.lineno}: `{name}` returns `{', '.join(parts)}` and is unpacked as "
                            f"`{', '.join(found)}`: in another order"
                        )
    return None


def passed(failed: Failed) -> str | None:
    """Arguments of a function of the file that stand where another parameter has their name."""
    if not re.search(
        r"incompatible|shape|rank|type|dimension|integer|\bints\b|constexpr|float|tuple", failed.text
    ):
        return None
    kernels = [*failed.source.kernels.values()]
    lines = [failed.line, *(frame.line for frame in failed.frames if not frame.other_file)]
    inside = [line for line in lines if failed.source.function(line) in kernels]
    roots = [failed.source.statement(line) for line in inside] or [*kernels]
    for call in (one for root in roots if root for one in ast.walk(root) if isinstance(one, ast.Call)):
        name = call.func.id if isinstance(call.func, ast.Name) else ""
        texts = (failed.source, *failed.given.values())
        taken = next((parameters(own) for text in texts if (own := text.defined(name))), [])
        given = [one.id if isinstance(one, ast.Name) else "" for one in call.args]
        if any(isinstance(one, ast.Starred) for one in call.args):
            continue
        pairs = [*zip(given, taken, strict=False)]
        crossed = [
            (value, place)
            for value, place in pairs
            if value in taken and value != place and (value, value) not in pairs
        ]
        if len(crossed) > 1:  # one alone may have its name by chance
            value, place = crossed[0]
            return f"line {call.lineno}: `{name}` gets `{value}` for `{place}`: in another order"
    return None


def _returned(function: ast.FunctionDef) -> list[list[str]]:
    """Return the names that a function returns in a tuple, for each such return."""
    found = []
    for node in ast.walk(function):
        match node:
            case ast.Return(ast.Tuple(parts)) if all(isinstance(one, ast.Name) for one in parts):
                found.append([one.id for one in parts if isinstance(one, ast.Name)])
    return found


def _crossed(found: list[str], returned: list[str]) -> bool:
    """Return whether a name is at another place on both sides: `acc` first here and last there."""
    if len(found) != len(returned):
        return False
    return any(one in returned and returned.index(one) != at for at, one in enumerate(found))


def _of_triton(call: ast.Call) -> str:
    match call.func:
        case ast.Attribute(ast.Name("tl"), name):
            return name
    return ""


def _is_condition(failed: Failed, node: ast.expr, depth: int = 4) -> bool:
    match node:
        case ast.Compare() | ast.BoolOp() | ast.UnaryOp(ast.Not()):
            return True
        case ast.BinOp(left, ast.BitAnd() | ast.BitOr(), right):
            return _is_condition(failed, left, depth) or _is_condition(failed, right, depth)
        case ast.Subscript(value) | ast.UnaryOp(ast.Invert(), value):
            return _is_condition(failed, value, depth)
        case ast.Name(name) if depth:
            values = list(assigned(failed.function, name))
            return bool(values) and all(_is_condition(failed, one, depth - 1) for one in values)
    return False


def _is_value(failed: Failed, node: ast.expr) -> bool:
    """Return whether an argument is computed in the kernel, and so is no axis."""
    if isinstance(node, ast.Call):
        return True
    fixed = constants(failed.function) if failed.function else []
    return isinstance(node, ast.BinOp) or (
        isinstance(node, ast.Name)
        and node.id not in fixed
        and any(not isinstance(one, ast.Constant) for one in assigned(failed.function, node.id))
    )


def is_number(node: ast.expr, host: ast.AST | None) -> bool:
    """Return whether an expression of host code is a number: a size, a stride, a literal."""
    match node:
        case ast.Constant(int() | float()):
            return True
        case ast.Call(ast.Attribute(attr="size" | "stride" | "numel" | "dim")) | ast.Call(ast.Name("len")):
            return True
        case ast.Subscript(ast.Attribute(attr="shape")):
            return True
        case ast.Name(name):
            return _is_a_size(host, name) or any(
                is_number(one, None) for one in assigned(host, name) if not isinstance(one, ast.Name)
            )
    return False


def _is_a_size(host: ast.AST | None, name: str) -> bool:
    """Return whether a name is unpacked from a shape: `(M, K), N = a.shape, b.shape[1]`."""
    for node in ast.walk(host) if host else ():
        if isinstance(node, ast.Assign):
            pairs = [(target, node.value) for target in node.targets]
            for target, value in pairs:
                names = [one.id for one in getattr(target, "elts", ()) if isinstance(one, ast.Name)]
                if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
                    pairs += [*zip(target.elts, value.elts, strict=False)]
                elif name in names and isinstance(value, ast.Attribute) and value.attr == "shape":
                    return True
    return False


RULES = (mask, reduced, shifted, unpacked, passed)
