"""Edits of host code: what a grid counts, arguments too many, conditions, numbers of an autograd function."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from grader.judge.repair.edit import (
    ASKS_NOTHING,
    BEFORE,
    CONDITION_OF_COPY,
    ONE_OBJECT,
    Edit,
    quoted,
    wrong_condition,
)
from grader.judge.repair.launched import kernel_of
from grader.judge.repair.source import ALLOCATING, Function, Part, Source, called, names_in

SINGLE = "torch.float32"
LAYOUT = ("is_contiguous", "stride")
COPYING = ("clone", "contiguous", "flatten", "float", "half", "reshape", "to")


def edits(source: Source, function: Function) -> Iterator[Edit]:
    """Yield every edit of one place of a function that is no kernel; of a kernel, its pairs alone."""
    if function.kernel:
        for node in function.nodes:
            if isinstance(node, ast.Tuple):
                yield from _of_a_pair(source, node)
        return
    counts = _counts(source, function)
    for node in ast.walk(function.node):
        yield from _asked_too_late(source, function, node)
    for node in function.nodes:
        yield from _copied_on_a_condition(source, node)
        yield from _not_copied(source, node)
        yield from _of_another_layout(source, node)
        yield from _asked_of_one_more(source, function, node)
        yield from _by_identity(source, node)
        match node:
            case ast.Assign(targets, ast.Call(ast.Attribute(attr=made)) as call) if made in ALLOCATING:
                if not {one.id for target in targets for one in names_in(target)} & {*function.parameters}:
                    yield from _in_more_digits(source, call, made)
            case ast.Assign(value=ast.Compare() | ast.BoolOp() as decided):
                yield from never(source, decided)
            case ast.Call(func=ast.Subscript(slice=grid)):
                for value in (*node.args, *(one.value for one in node.keywords)):
                    yield from never(source, value)
                yield from _of_both_strides(source, node)
                yield from _of_starred_strides(source, function, node)
                yield from _of_a_grid(source, grid, counts)
                yield from _copied(source, function, node)
            case ast.Call(func=ast.Name(name)):
                yield from _copied(source, function, node)
                yield from _called_again(source, node, name)
                if name in source.functions:
                    yield from _without_a_keyword(source, node)
                elif kernel_of(function.node, node, source.functions):
                    yield from _of_both_strides(source, node)
                    for value in (*node.args, *(one.value for one in node.keywords)):
                        yield from never(source, value)
            case ast.Assign([ast.Name()], ast.Subscript(ast.Name() | ast.Call(), slice=ast.Tuple() as grid)):
                yield from _of_a_grid(source, grid, counts)
            case ast.Tuple():
                yield from _of_a_pair(source, node)
            case ast.Assign([ast.Name(name)], ast.Name(other)) if {name, other} <= {*function.parameters}:
                mistake = f"the input `{other}` itself is taken for `{name}`, and is overwritten"
                text = f"{name} = torch.empty_like({other})"
                yield Edit.of_node(source, 0, node, text, mistake)
            case ast.Return(None):
                yield from _of_a_bare_return(source, function, node)
            case ast.BoolOp(operator, values):
                yield from _of_conditions(source, node, operator, values)
            case ast.IfExp(test, body, orelse):
                one, other = source.text_of(body), source.text_of(orelse)
                mistake = wrong_condition(source.text_of(test))
                turned = f"({other} if {source.text_of(test)} else {one})"
                yield Edit.of_node(source, 3, node, turned, mistake)
                yield Edit.of_node(source, 3, node, f"({one})", mistake)
                yield Edit.of_node(source, 3, node, f"({other})", mistake)
    yield from _numbers_of_forward(source, function)


def _copied_on_a_condition(source: Source, node: ast.AST) -> Iterator[Edit]:
    """Make a tensor contiguous always, where a condition decides about that."""
    match node:
        case ast.IfExp(test, one, other) if _copies(one) != _copies(other):
            always = "True" if _copies(one) else "False"
        case ast.If(test, [ast.Assign([ast.Name()], value)], orelse) if _copies(value) and not orelse:
            always = "True"
        case _:
            return
    mistake = f"{quoted(source.text_of(test))} {CONDITION_OF_COPY}"
    yield Edit.of_node(source, 0, test, always, mistake)


def _of_another_layout(source: Source, node: ast.AST) -> Iterator[Edit]:
    """Make a contiguous tensor, where one is made with the layout of another."""
    match node:
        case ast.Call(ast.Attribute(_, "empty_like" | "zeros_like" | "ones_like"), [tensor], keywords) if (
            not any(one.arg == "memory_format" for one in keywords)
        ):
            code = source.text_of(node)
            mistake = f"{quoted(code)} has the layout of {quoted(source.text_of(tensor))}, which may be any"
            text = f"{code.rstrip()[:-1].rstrip().rstrip(',')}, memory_format=torch.contiguous_format)"
            yield Edit.of_node(source, 0, node, text, mistake)


def _not_copied(source: Source, node: ast.AST) -> Iterator[Edit]:
    """Take a tensor itself in place of a copy of it: what is stored in that does not reach the tensor."""
    match node:
        case ast.Call(ast.Attribute(tensor, method)) if method in COPYING:
            itself = quoted(source.text_of(tensor))
            mistake = f"{quoted(source.text_of(node))} may be a copy: {itself} is meant"
            yield Edit.of_node(source, 1, node, source.text_of(tensor), mistake)


def _asked_of_one_more(source: Source, function: Function, node: ast.AST) -> Iterator[Edit]:
    """Ask of one more tensor what a condition asks of some: whether it is contiguous, or its strides."""
    match node:
        case ast.If(test) | ast.IfExp(test):
            tests = [test]
        case ast.Assign(value=value):
            tests = [value]
        case ast.Call(keywords=keywords):
            tests = [one.value for one in keywords]
        case _:
            return
    for test in (one for one in tests if isinstance(one, ast.BoolOp | ast.Compare | ast.Call)):
        every = test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) else [test]
        asked = {one: name for one in every if (name := _of_whose_layout(one))}
        for part, name in list(asked.items())[:1]:
            words = re.compile(rf"\b{re.escape(name)}\b")
            for other in (one for one in function.parameters if one not in asked.values()):
                mistake = f"{quoted(source.text_of(test))} {ASKS_NOTHING} `{other}`"
                text = f"(({source.text_of(test)}) and {words.sub(other, source.text_of(part))})"
                yield Edit.of_node(source, 0, test, text, mistake)


def _of_whose_layout(condition: ast.expr) -> str:
    """Return the one tensor of whose layout a condition asks; "" if it asks something else."""
    nodes = [*ast.walk(condition)]
    tensors = {
        node.value.id
        for node in nodes
        if isinstance(node, ast.Attribute) and node.attr in LAYOUT and isinstance(node.value, ast.Name)
    }
    is_plain = len(tensors) == 1 and not any(isinstance(node, ast.BoolOp) for node in nodes)
    return tensors.pop() if is_plain else ""


def _by_identity(source: Source, node: ast.AST) -> Iterator[Edit]:
    """Compare what two objects have, and not whether they are one."""
    match node:
        case ast.Compare(left, [ast.Is() | ast.IsNot() as sign], [right]) if not (
            isinstance(left, ast.Constant) or isinstance(right, ast.Constant)
        ):
            equal = "==" if isinstance(sign, ast.Is) else "!="
            mistake = f"{quoted(source.text_of(node))} {ONE_OBJECT}"
            text = f"({source.text_of(left)} {equal} {source.text_of(right)})"
            yield Edit.of_node(source, 0, node, text, mistake)


def _asked_too_late(source: Source, function: Function, node: ast.AST) -> Iterator[Edit]:
    """Ask whether a parameter was given before it gets another value."""
    match node:
        case ast.Compare(ast.Name(name), [ast.Is() | ast.IsNot()], [ast.Constant(None)]) if (
            name in function.parameters
        ):
            asked = node.left
        case _:
            return
    before = [
        one.lineno
        for one in function.nodes
        if isinstance(one, ast.Assign)
        and one.lineno < node.lineno
        and name in {inner.id for target in one.targets for inner in names_in(target)}
    ]
    if before:
        first = function.node.body[0]
        begin, indent = source.span(first)[0], " " * first.col_offset
        kept = f"{name}{BEFORE}"
        parts = (((begin, begin), f"{kept} = {name}\n{indent}"), (source.span(asked), kept))
        condition = quoted(source.text_of(node))
        mistake = f"{condition} is asked after line {min(before)} has given `{name}` another value"
        yield Edit(0, node.lineno, mistake, parts)


def _copies(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and called(node) == "contiguous"


def _of_both_strides(source: Source, launch: ast.Call) -> Iterator[Edit]:
    """Pass the row strides of two tensors where `*x.stride()` passes both strides of one."""
    tensors = [one.id for one in launch.args if isinstance(one, ast.Name)]
    for node in launch.args:
        match node:
            case ast.Starred(ast.Call(ast.Attribute(ast.Name(name), "stride"), [])):
                for other in (one for one in tensors if one != name):
                    mistake = f"{quoted(source.text_of(node))} passes both strides of `{name}`"
                    yield Edit.of_node(source, 0, node, f"{name}.stride(0), {other}.stride(0)", mistake)


def _of_starred_strides(source: Source, function: Function, launch: ast.Call) -> Iterator[Edit]:
    """Exchange two parameters of a kernel that get both strides of a matrix by `*x.stride()`."""
    kernel = source.functions.get(kernel_of(function.node, launch, source.functions))
    if kernel is None:
        return
    given, at = kernel.node.args, 0
    parameters = (*given.posonlyargs, *given.args)
    for node in launch.args:
        match node:
            case ast.Starred(ast.Call(ast.Attribute(ast.Name(name), "stride"), [])):
                pair = parameters[at : at + 2]
                at += 2
            case ast.Starred():
                return
            case _:
                at += 1
                continue
        if len(pair) == 2:
            one, other = pair
            spans = [source.span(part) for part in pair]
            words = f"the parameters for `*{name}.stride()` are `{one.arg}` and `{other.arg}`"
            mistake = f"{words}: the stride of the rows comes first"
            parts = tuple(zip(spans, (source.between(*spans[1]), source.between(*spans[0])), strict=True))
            yield Edit(0, one.lineno, mistake, parts)


def _in_more_digits(source: Source, node: ast.Call, name: str) -> Iterator[Edit]:
    """Keep in fp32 what one kernel stores and another one loads."""
    code = quoted(source.text_of(node))
    dtype = next((one.value for one in node.keywords if one.arg == "dtype"), None)
    if dtype is not None and source.text_of(dtype) != SINGLE:
        mistake = f"{code} keeps in {quoted(source.text_of(dtype))} what needs more digits"
        yield Edit.of_node(source, 1, dtype, SINGLE, mistake)
    elif dtype is None and name not in ("empty", "zeros", "full"):
        text = source.text_of(node)[:-1].rstrip().rstrip(",")
        mistake = f"{code} has the dtype of the tensor that it is made from, and needs more digits"
        yield Edit.of_node(source, 1, node, f"{text}, dtype={SINGLE})", mistake)


def never(source: Source, condition: ast.expr) -> Iterator[Edit]:
    """Let a condition, that a kernel gets as a constant, never hold: then its general part runs."""
    if isinstance(condition, ast.Compare | ast.BoolOp):
        yield Edit.of_node(source, 2, condition, "False", wrong_condition(source.text_of(condition)))


def _of_a_pair(source: Source, node: ast.Tuple) -> Iterator[Edit]:
    """Exchange the two entries of a pair, such as the steps of a block pointer along both axes."""
    match node:
        case ast.Tuple(elts=[first, second], ctx=ast.Load()) if not isinstance(first, ast.Slice):
            if isinstance(second, ast.Slice):  # new axes, which have edits of their own
                return
            mistake = f"the two entries of {quoted(source.text_of(node))} are exchanged"
            text = f"({source.text_of(second)}, {source.text_of(first)})"
            yield Edit.of_node(source, 1, node, text, mistake)


def _counts(source: Source, function: Function) -> list[str]:
    """Return expressions of a function that may count programs: what grids have, names, sizes of tensors."""
    found = []
    for node in function.nodes:
        match node:
            case (
                ast.Call(func=ast.Subscript(slice=ast.Tuple(elts)))
                | ast.Assign(value=ast.Subscript(ast.Name() | ast.Call(), slice=ast.Tuple(elts)))
            ):
                found += [source.text_of(one) for one in elts]
            case ast.Subscript(ast.Attribute(attr="shape"), ast.Constant()):
                found.append(source.text_of(node))
            case ast.Assign([ast.Tuple(targets)], _):
                found += [one.id for one in targets if isinstance(one, ast.Name)]
            case ast.Assign([ast.Name(name)], ast.Call() | ast.BinOp() | ast.Subscript()):
                found.append(name)
    return list(dict.fromkeys(found))


def _of_a_grid(source: Source, grid: ast.expr, counts: list[str]) -> Iterator[Edit]:
    """Let a grid count something else along one axis."""
    if not isinstance(grid, ast.Tuple):
        return
    whole = quoted(source.text_of(grid))
    for entry in grid.elts:
        code = source.text_of(entry)
        for other in counts:
            if other != code:
                mistake = f"the grid {whole} has the wrong number of programs: {quoted(code)}"
                yield Edit.of_node(source, 2, entry, other, mistake)


def _without_a_keyword(source: Source, node: ast.Call) -> Iterator[Edit]:
    """Leave out one argument that is given by name to a function of the file."""
    for keyword in node.keywords:
        if keyword.arg is None or len(node.args) + len(node.keywords) < 2:
            continue
        others = [source.text_of(one) for one in (*node.args, *node.keywords) if one is not keyword]
        text = f"{source.text_of(node.func)}({', '.join(others)})"
        given = quoted(source.text_of(keyword))
        mistake = f"the argument {given} does not belong in {quoted(source.text_of(node))}"
        yield Edit.of_node(source, 1, node, text, mistake)


def _copied(source: Source, function: Function, node: ast.Call) -> Iterator[Edit]:
    """Make a gradient contiguous that is used as if it were."""
    for one in node.args:
        is_gradient = isinstance(one, ast.Name) and one.id[0] in "dg"
        if isinstance(one, ast.Name) and is_gradient and function.name.endswith("backward"):
            mistake = f"`{one.id}` is used as if its columns lay side by side"
            yield Edit.of_node(source, 2, one, f"{one.id}.contiguous()", mistake)


def _called_again(source: Source, node: ast.Call, name: str) -> Iterator[Edit]:
    """Leave out a call of a function of the file, such as one for what was computed before."""
    of_the_file = name in source.functions and not source.functions[name].kernel
    match node.args:
        case [ast.Name(given)] if of_the_file and not node.keywords:
            mistake = f"{quoted(source.text_of(node))} does not belong there: `{given}` is meant"
            yield Edit.of_node(source, 1, node, given, mistake)


def _of_a_bare_return(source: Source, function: Function, node: ast.Return) -> Iterator[Edit]:
    """Return what the function returns elsewhere."""
    returned = [one.value for one in function.nodes if isinstance(one, ast.Return) and one.value is not None]
    for value in dict.fromkeys(map(source.text_of, returned)):
        mistake = "the bare `return` gives None in place of a result"
        yield Edit.of_node(source, 0, node, f"return {value}", mistake)


def _of_conditions(
    source: Source, node: ast.BoolOp, operator: ast.boolop, values: list[ast.expr]
) -> Iterator[Edit]:
    """Leave out one of several conditions, or join them the other way; `a or b` as a default counts, too."""
    code, texts = quoted(source.text_of(node)), [f"({source.text_of(one)})" for one in values]
    for at, one in enumerate(values):
        joined = f" {'and' if isinstance(operator, ast.And) else 'or'} ".join(texts[:at] + texts[at + 1 :])
        mistake = f"{quoted(source.text_of(one))} does not belong in {code}"
        yield Edit.of_node(source, 2, node, f"({joined})", mistake)
    if isinstance(operator, ast.Or) and len(values) == 2 and isinstance(values[0], ast.Name):
        name, usual = values[0].id, source.text_of(values[1])
        mistake = f"{code} is {quoted(usual)} also where `{name}` is 0, and not only where it is None"
        yield Edit.of_node(source, 2, node, f"({usual} if {name} is None else {name})", mistake)
    other = " or " if isinstance(operator, ast.And) else " and "
    mistake = f"{code} joins its conditions the wrong way"
    yield Edit.of_node(source, 2, node, f"({other.join(texts)})", mistake)


def _numbers_of_forward(source: Source, function: Function) -> Iterator[Edit]:
    """Give backward a number that forward was given, in place of one that is written in its code."""
    owner, _, method = function.name.partition(".")
    forward = source.functions.get(f"{owner}.forward")
    if method != "backward" or forward is None:
        return
    context = function.parameters[0] if function.parameters else "ctx"
    first, kept = forward.node.body[0], forward.parameters[0] if forward.parameters else "ctx"
    begin = source.span(first)[0]
    for node in function.nodes:
        is_number = isinstance(node, ast.Constant) and isinstance(node.value, float)
        if not is_number and not (isinstance(node, ast.Name) and node.id in source.numbers):
            continue
        for name in forward.parameters[1:]:
            mistake = f"{source.text_of(node)} stands here in place of the `{name}` of the forward pass"
            parts: tuple[Part, ...] = ((source.span(node), f"{context}.{name}"),)
            if f"{kept}.{name} = " not in source.text_of(forward.node):
                keep = f"{kept}.{name} = {name}\n{' ' * first.col_offset}"
                parts = (*parts, ((begin, begin), keep))
            yield Edit(1, node.lineno, mistake, parts)  # type: ignore[attr-defined]
