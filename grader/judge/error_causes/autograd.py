"""Autograd functions: what forward and backward return, save and unpack."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping

from grader.judge.error_causes.failed import Failed, short
from grader.judge.error_causes.host import number
from grader.judge.error_causes.names import saved_tuple

_GRADIENTS = re.compile(
    r"function (\w+?)Backward returned an incorrect number of gradients \(expected (\d+), got (\d+)\)"
)
_SHAPE = re.compile(
    r"Function (\w+?)Backward returned an invalid gradient at index (\d+) - got \[([\d, ]*)\] "
    r"but expected shape compatible with \[([\d, ]*)\]"
)
_RETURNED = re.compile(r"(\w+) returned (\w+), not a tensor")


def autograd(failed: Failed) -> str | None:
    """What forward and backward of an autograd function return and save."""
    text = failed.text
    found = _GRADIENTS.search(text)
    if found:
        wanted, given = int(found[2]), int(found[3])
        return (
            f"`backward` returns {number(given)} gradient{'s' * (given != 1)}, and `forward` "
            f"took {number(wanted)} "
            f"argument{'s' * (wanted != 1)} besides `ctx`: return one for each, None for what "
            "needs no gradient"
        )
    found = _SHAPE.search(text)
    if found:
        return _of_another_shape(failed, found[1], int(found[2]), found[3].split(", "), found[4].split(", "))
    found = _RETURNED.search(text)
    if found and found[2] == "NoneType":
        return _no_return(failed, found[1])
    if found and found[2] in ("tuple", "list"):
        return (
            f"`{found[1]}` gives a {found[2]}, and one tensor is wanted: look at what is returned on its way"
        )
    if found and any(
        isinstance(one, ast.ClassDef) and one.name == found[2] for one in ast.walk(failed.source.tree)
    ):
        return (
            f"`{found[2]}(...)` makes an object of the class: an autograd function is called by "
            f"`{found[2]}.apply(...)`"
        )
    if re.search(r"backward left no gradient for argument (\d+)", text):
        lacking = [one for one in failed.source.functions if one.name == "backward" and not _returns(one)]
        if len(lacking) == 1:
            return "`backward` has no `return`, so there is no gradient"
        return _alone(failed, text)
    if "without a gradient function" in text:
        return _alone(failed, text)
    found = re.search(r"save_for_backward can only save variables, but argument (\d+) is of type (\w+)", text)
    if found:
        return (
            f"`save_for_backward` takes tensors alone, and gets a value of type {found[2]}: "
            "keep it on `ctx` by a name of its own"
        )
    if re.search(r"leaf Variable that requires grad .*in-place|a view of a leaf Variable", text):
        return "an input that needs a gradient is changed in place: write to a new tensor"
    if re.search(r"modified by an inplace operation", text):
        return "a tensor that `backward` needs was changed in place after it was saved"
    return None


def _of_another_shape(failed: Failed, name: str, at: int, got: list[str], wanted: list[str]) -> str:
    """Of a gradient that has not the shape of its input."""
    classes = [
        one for one in ast.walk(failed.source.tree) if isinstance(one, ast.ClassDef) and one.name == name
    ]
    methods = {one.name: one for own in classes for one in own.body if isinstance(one, ast.FunctionDef)}
    inputs = [one.arg for one in methods["forward"].args.args[1:]] if "forward" in methods else []
    of = f"`{inputs[at]}`" if at < len(inputs) else "its input"
    what = "is transposed" if got[::-1] == wanted else "has other sizes or axes"
    told = f"gradient {at + 1} that `backward` returns, {_expression(methods, at)}"
    return f"{told}, must be like {of}: it {what}"


def _expression(methods: Mapping[str, ast.FunctionDef], at: int) -> str:
    """Return the code of a gradient that backward returns."""
    backward = methods.get("backward")
    returned = [one.value for one in ast.walk(backward) if isinstance(one, ast.Return)] if backward else []
    match returned:
        case [ast.Tuple(elts)] if at < len(elts) and not any(isinstance(one, ast.Starred) for one in elts):
            return short(elts[at])
    return "which is one of several"


def _alone(failed: Failed, text: str) -> str | None:
    """Of a gradient that is missing where no other input needs one."""
    found = re.search(r"of (\w+) where argument (\d+) alone needs", text) or re.search(
        r"(\w+) returned .* where argument (\d+) alone needs", text
    )
    if not found:
        return None
    graded, at = failed.source.defined(found[1]), int(found[2])
    names = [one.arg for one in graded.args.args] if graded else []
    which = f"`{names[at - 1]}`" if at <= len(names) else f"argument {at}"
    return (
        f"where {which} alone needs a gradient there is none: what `backward` computes may not depend on "
        "whether another input needs one"
    )


def _no_return(failed: Failed, name: str) -> str | None:
    """Which function forgot its return: the graded one, or the forward that it calls through apply."""
    graded = failed.source.defined(name)
    if graded is not None and not _returns(graded):
        return f"`{name}` has no `return`"
    lacking = [one for one in failed.source.functions if one.name == "forward" and not _returns(one)]
    return "`forward` has no `return`, so its result is None" if len(lacking) == 1 else None


def _returns(function: ast.FunctionDef) -> bool:
    return any(isinstance(one, ast.Return) and one.value is not None for one in ast.walk(function))


def saved(failed: Failed) -> str | None:
    """The tuple of saved tensors, passed on to a kernel or to a function."""
    if re.search(r"'tuple'|type tuple|<class 'tuple'>|tuple object", failed.text):
        return saved_tuple(failed)
    return None


RULES = (saved, autograd)
