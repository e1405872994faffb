"""Whether a function returns what is asked of it: the outputs that it was given, or new tensors like them."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice, permutations

from grader.course.signatures import Shape, Tensors
from grader.course.spec import Case, Exercise, Lab, Reason, Verdict
from grader.course.symptoms import Symptom
from grader.judge.diagnosis import diagnosed
from grader.judge.origins import Origin, origins
from grader.results.findings import Frame
from grader.results.outcome import Outcome
from grader.system.text import one_line
from grader.worker.messages import FIRST_INPUT, Returned

ELSEWHERE = "nothing was written to it: the function returned something else in its place"


def fault(
    lab: Lab,
    exercise: Exercise,
    case: Case,
    shapes: Mapping[str, Shape],
    returned: Sequence[Returned] | None,
    text: str,
) -> Outcome | None:
    """Return WRONG if a function returned something else than its outputs; None if that was not looked at.

    `shapes` are those of the outputs, by name, and `text` is the file, of which the line is shown.
    """
    if returned is None or exercise.native:
        return None
    found = _copied(case, returned) if exercise.differentiable else _found(case, shapes, returned)
    if found is None:
        return None
    outcome = diagnosed(lab, Verdict.WRONG, Reason.RETURNED, *found)
    bare = _bare_return(text, exercise.name) if found[0] is Symptom.RETURNS_NOTHING else ()
    if bare:
        cause = f"line {bare[0].line}: this `return` gives no result"
        return replace(outcome, frames=bare, cause=cause, plain_cause=cause)
    is_another = found[0] is Symptom.RETURNS_ANOTHER
    outcome = replace(outcome, frames=_last_return(text, exercise.name, made=is_another))
    hands_back = any(one.identity for one in exercise.cases)  # an input, where nothing is to be computed
    asked = is_another and not hands_back
    taken = _returned_input(text, exercise.name, [*shapes]) if asked else None
    if taken:
        frame, name = taken
        cause = f"line {frame.line}: `{name}` is an input, and is returned in place of {_asked(shapes)}"
        return replace(outcome, frames=(frame,), cause=cause, plain_cause=cause)
    if found[0] is Symptom.RETURNED_KIND:
        which, cause = _unlike(case, shapes, returned)
        made = _maker(text, exercise, which, case, may_be_contiguous="contiguous tensor" not in cause)
        if made:
            outcome = replace(outcome, frames=(made.frame,))
            cause = f"line {made.frame.line}: `{one_line(ast.unparse(made.node))}`, which {cause}"
        else:
            cause = f"what {cause}"
        outcome = replace(outcome, cause=cause, plain_cause=cause)
    elif is_another and not case.allocates and [one.type for one in returned] == ["Tensor"]:
        made = _maker(text, exercise, 0, case)
        if made:
            code, line = one_line(ast.unparse(made.node)), made.frame.line
            cause = f"line {line}: `{code}` is returned in place of `{exercise.outputs[0]}`"
            outcome = replace(outcome, frames=(made.frame,), cause=cause, plain_cause=cause)
    return outcome


def made_elsewhere(outcome: Outcome, exercise: Exercise, case: Case, text: str) -> Outcome:
    """Return the outcome of a function that left its output unwritten and returned another tensor.

    Its cause has the line that makes the other tensor, if one alone can be.
    """
    words = ELSEWHERE
    made = None if exercise.native or len(exercise.outputs) > 1 else _maker(text, exercise, 0, case)
    if made:
        code, line = one_line(ast.unparse(made.node)), made.frame.line
        asked = exercise.outputs[0]
        words = f"line {line}: `{code}` is returned in place of `{asked}`, to which nothing was written"
        outcome = replace(outcome, frames=(made.frame,))
    return replace(outcome, cause=words, plain_cause=words)


def input_as_result(outcome: Outcome, exercise: Exercise, case: Case, text: str, name: str) -> Outcome:
    """Return the outcome of a function that wrote to an input, with the line that makes it the result.

    As it came if no line does: a kernel may store into an input, and another tensor be returned.
    """
    if exercise.native or not case.allocates:
        return outcome
    found = [one for k in range(len(exercise.outputs)) for one in origins(text, exercise.name, k)]
    taken = next((one for one in found if one.parameter == name and one.where_none), None)
    if taken is None:
        return outcome
    cause = (
        f"line {taken.frame.line}: where no `out` is passed, the result is written over the input `{name}`"
    )
    return replace(outcome, frames=(taken.frame,), cause=cause, plain_cause=cause)


def _maker(
    text: str, exercise: Exercise, which: int, case: Case, may_be_contiguous: bool = True
) -> Origin | None:
    """Return the one expression that makes a result; None if there are several, or none."""
    found = [
        one
        for one in origins(text, exercise.name, which)
        if not one.parameter
        and (case.allocates or not one.where_none)
        and (may_be_contiguous or not one.is_always_contiguous)
    ]
    return found[0] if len(found) == 1 else None


def in_another_order(
    lab: Lab, exercise: Exercise, case: Case, got: Tensors, is_right: Callable[[Tensors], bool], text: str
) -> Outcome | None:
    """Return WRONG if new tensors are right in another order than the one asked for; None otherwise."""
    if not case.allocates:
        return None
    shapes = [one.shape for one in got]
    for order in islice(permutations(range(len(got))), 1, None):
        moved = [got[k] for k in order]
        if [one.shape for one in moved] == shapes and is_right(moved):
            names = ", ".join(f"`{exercise.outputs[order.index(k)]}`" for k in range(len(got)))
            where = f"the function returned {names} in place of {_asked(exercise.outputs)}"
            outcome = diagnosed(lab, Verdict.WRONG, Reason.RETURNED, Symptom.RETURNED_ORDER, where)
            return replace(outcome, frames=_last_return(text, exercise.name))
    return None


def _asked(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _copied(case: Case, returned: Sequence[Returned]) -> tuple[Symptom, str] | None:
    """Return the symptom where the first input was to be returned, and another tensor was."""
    if not case.identity or [one.output for one in returned] == [FIRST_INPUT]:
        return None
    return Symptom.RETURNS_A_COPY, f"another tensor was returned in place of {FIRST_INPUT} itself"


def _found(
    case: Case, shapes: Mapping[str, Shape], returned: Sequence[Returned]
) -> tuple[Symptom, str] | None:
    """Return the symptom, and in words what was returned; None if it is what was asked for."""
    asked = _asked(shapes)
    types = [one.type for one in returned]
    if types == ["NoneType"]:
        return Symptom.RETURNS_NOTHING, f"the function returned None in place of {asked}"
    if len(returned) != len(shapes) or set(types) != {"Tensor"}:
        had = f"{types[0]}" if len(types) == 1 else f"{len(types)} values: {', '.join(types)}"
        return Symptom.RETURNS_ANOTHER, f"the function returned {had} in place of {asked}"
    if not case.allocates:
        names = [one.output for one in returned]
        if names == [*shapes]:
            return None
        if sorted(names) == sorted(shapes):
            return Symptom.RETURNED_ORDER, f"the function returned {_asked(names)} in place of {asked}"
        other = next(name for name, is_it in zip(shapes, names, strict=True) if name != is_it)
        return Symptom.RETURNS_ANOTHER, f"`{other}` was passed, and another tensor was returned in its place"
    for (name, shape), one in zip(shapes.items(), returned, strict=True):
        if (one.shape, one.dtype) != (shape, case.dtype):
            had, wanted = f"{one.shape} {one.dtype}", f"{shape} {case.dtype}"
            where = f"without {asked}, the function returned {had} for `{name}`, which is {wanted}"
            return Symptom.RETURNED_KIND, where
        if not one.contiguous:
            return Symptom.RETURNED_KIND, f"the new tensor for `{name}` is not contiguous"
    return None


def _unlike(case: Case, shapes: Mapping[str, Shape], returned: Sequence[Returned]) -> tuple[int, str]:
    """Return the number of the first new tensor that is not as asked for, and how it is unlike."""
    what = "is returned where no `out` is passed,"
    for at, (shape, one) in enumerate(zip(shapes.values(), returned, strict=True)):
        if one.shape != shape:
            return at, f"{what} has the shape {one.shape}, and not {shape}"
        if one.dtype != case.dtype:
            return at, f"{what} is {one.dtype}, and not {case.dtype} as the inputs are"
        if not one.contiguous:
            turned = len(one.strides) > 1 and one.strides[0] < one.strides[-1]
            how = "is stored by columns, as a transposed view is" if turned else "has gaps, as a slice has"
            return (
                at,
                f"{what} {how} (its strides are {one.strides}), and a new contiguous tensor is asked for",
            )
    return 0, ""


def _bare_return(text: str, function: str) -> tuple[Frame, ...]:
    """Return the line of a function's first `return` without a value, if its last statement returns one."""
    own = _defined(text, function)
    if own is None or not isinstance(own.body[-1], ast.Return) or own.body[-1].value is None:
        return ()
    for line in _returns(own, lambda one: one.value is None):
        return (Frame(line=line, function=function, code=text.splitlines()[line - 1].strip()),)
    return ()


def _returned_input(text: str, function: str, outputs: Sequence[str]) -> tuple[Frame, str] | None:
    """Return the line of the one `return` of a function that returns an input, and its name; None if several
    do, or none.
    """
    own = _defined(text, function)
    if own is None:
        return None
    inputs = {one.arg for one in (*own.args.posonlyargs, *own.args.args)} - {*outputs}
    found = _returns(own, lambda one: isinstance(one.value, ast.Name) and one.value.id in inputs)
    if len(found) != 1:
        return None
    code = text.splitlines()[found[0] - 1].strip()
    names = [one.id for one in ast.walk(ast.parse(code)) if isinstance(one, ast.Name)]
    return Frame(line=found[0], function=function, code=code), names[0]


def _defined(text: str, function: str) -> ast.FunctionDef | None:
    """Return a function of a file; None if the file has none of that name, or is no Python."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return None
    found = (node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == function)
    return next(found, None)


def _returns(own: ast.FunctionDef, asked: Callable[[ast.Return], bool]) -> list[int]:
    """Return the lines of a function's own `return` statements of one kind."""
    inner = [one for one in ast.walk(own) if one is not own and isinstance(one, ast.FunctionDef | ast.Lambda)]
    hidden = {id(node) for one in inner for node in ast.walk(one)}
    nodes = (one for one in ast.walk(own) if isinstance(one, ast.Return) and id(one) not in hidden)
    return sorted(one.lineno for one in nodes if asked(one))


def _last_return(text: str, function: str, made: bool = False) -> tuple[Frame, ...]:
    """Return the line of a function's last `return`, or that of its name where it has none.

    If what it returned was `made` in its place, a `return` of what has no name comes first.
    """
    own = _defined(text, function)
    if own is None:
        return ()
    new = _returns(own, lambda one: isinstance(one.value, ast.Call)) if made else []
    line = max(new or _returns(own, lambda _: True), default=own.lineno)
    return (Frame(line=line, function=function, code=text.splitlines()[line - 1].strip()),)
