"""Edits of names: one name in the place of another, two that are exchanged, one that is passed twice."""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

from grader.judge.repair.edit import Edit, quoted
from grader.judge.repair.kinds import Kind, exchangeable, kinds_of
from grader.judge.repair.launched import STRIDE, kernel_of
from grader.judge.repair.source import Function, Source, called, names_in

REDUCTIONS = ("max", "min", "sum")


def edits(source: Source, function: Function) -> Iterator[Edit]:
    """Yield every edit that puts another name in a place of a function."""
    names, kinds = _visible(function), kinds_of(function)
    made, multiplied, set_in = _made_of(function), _multiplied(function), _set_for_one_place(source, function)
    known = _Known(names, kinds, function.unused, made, multiplied, set_in, limits(function))
    whole = {id(inner): node for node in ast.walk(function.node) for inner in ast.iter_child_nodes(node)}
    yield from _exchanged(source, function, kinds)
    yield from _passed_twice(source, function, names)
    if not function.kernel:
        yield from _filled_for_nothing(source, function)
    yield from _exchanged_in_a_statement(source, function, kinds)
    yield from _both_of_a_comparison(source, function, names)
    if function.kernel:
        yield from _part_of_what_is_meant(source, function, whole)
        yield from _of_a_decision(source, function, kinds)
        yield from _smaller_elsewhere(source, function)
    reduced = _reduced(function)
    for node in function.nodes:
        if function.kernel and isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
            yield from _a_number_for_lanes(source, node, whole.get(id(node), node), reduced)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in names:
            around = whole.get(id(node), node)
            yield from _other_names(source, function, node, around, known)


def _exchanged(source: Source, function: Function, kinds: dict[str, Kind]) -> Iterator[Edit]:
    """Exchange two sizes in all comparisons of a kernel, or in all of its arithmetic."""
    for kind, around in ((Kind.SIZE, ast.Compare), (Kind.STRIDE, ast.BinOp), (Kind.SIZE, ast.BinOp)):
        inside = {one for node in function.nodes if isinstance(node, around) for one in names_in(node)}
        places: dict[str, list[ast.Name]] = {}
        for node in sorted(inside, key=lambda node: (node.lineno, node.col_offset)):
            if kinds.get(node.id) is kind:
                places.setdefault(node.id, []).append(node)
        under = {name for block in function.branches for name in names_in(block)}
        for one, other in combinations(places, 2):
            line = min(places[one][0].lineno, places[other][0].lineno)
            where = "the comparisons" if around is ast.Compare else "the arithmetic"
            mistake = f"`{one}` and `{other}` are exchanged in {where} of the kernel"
            every = [(node, other) for node in places[one]] + [(node, one) for node in places[other]]
            # What runs under a condition may be right.
            for found in (every, [(node, name) for node, name in every if node not in under]):
                if len({name for _, name in found}) > 1:
                    yield Edit(1, line, mistake, tuple((source.span(node), name) for node, name in found))


def _passed_twice(source: Source, function: Function, names: list[str]) -> Iterator[Edit]:
    """Pass a name that is not used otherwise in place of the second of two arguments that are the same."""
    for node in function.nodes:
        if not isinstance(node, ast.Call):
            continue
        given = [*node.args, *(one.value for one in node.keywords)]
        plain = [one for one in given if isinstance(one, ast.Name)]
        for at, one in enumerate(plain):
            if one.id in {earlier.id for earlier in plain[:at]}:
                passed = {each.id for each in plain}
                mistake = f"`{one.id}` is passed twice in {quoted(source.text_of(node))}"
                others = [name for name in names if name not in passed]
                for other in others if function.kernel else (*others, "None"):
                    yield Edit.of_node(source, 0, one, other, mistake)


def _filled_for_nothing(source: Source, function: Function) -> Iterator[Edit]:
    """Pass a tensor that one launch fills, and nothing uses, in place of an argument of a later launch."""
    kernels = [name for name, one in source.functions.items() if one.kernel]
    calls = [node for node in function.nodes if isinstance(node, ast.Call)]
    launches = [call for call in calls if kernel_of(function.node, call, kernels)]
    read = [node for node in function.nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)]
    times = Counter(node.id for node in read)
    for first in launches:
        filled = [one.id for one in first.args if isinstance(one, ast.Name) and times[one.id] == 1]
        for name in (one for one in filled if one in function.stored):
            for later in launches:
                for one in later.args if later.lineno > first.lineno else ():
                    if isinstance(one, ast.Name):
                        mistake = (
                            f"`{name}`, which line {first.lineno} fills, is not used: `{one.id}` is passed"
                        )
                        yield Edit.of_node(source, 0, one, name, mistake)


def _exchanged_in_a_statement(source: Source, function: Function, kinds: dict[str, Kind]) -> Iterator[Edit]:
    """Exchange two sizes, constants, indices or values of one statement with each other."""
    for statement in function.nodes:
        if not isinstance(statement, ast.Assign | ast.AugAssign | ast.Return | ast.Expr):
            continue
        for kind in (Kind.CONSTANT, Kind.INDEX, Kind.SIZE, Kind.VALUE):
            places: dict[str, list[ast.Name]] = {}
            for node in names_in(statement):
                if kinds.get(node.id) is kind and isinstance(node.ctx, ast.Load):
                    places.setdefault(node.id, []).append(node)
            for one, other in combinations(places, 2):
                parts = (*((source.span(node), other) for node in places[one]),
                         *((source.span(node), one) for node in places[other]))  # fmt: skip
                mistake = f"`{one}` and `{other}` are exchanged in {quoted(source.text_of(statement))}"
                yield Edit(2, statement.lineno, mistake, parts)


def _both_of_a_comparison(source: Source, function: Function, names: list[str]) -> Iterator[Edit]:
    """Compare two other names that are to those compared as `m_a` and `m_b` are to `d_a` and `d_b`."""
    for node in function.nodes:
        match node:
            case ast.Compare(ast.Name(one), [_], [ast.Name(other)]) if one != other:
                sides = (node.left, node.comparators[0])
            case _:
                continue
        for first in (name for name in names if name not in (one, other)):
            second = in_the_same_way(one, first, other)
            if second in names and second not in (one, other, first):
                mistake = f"{quoted(source.text_of(node))} compares the wrong values"
                parts = tuple(
                    (source.span(side), name) for side, name in zip(sides, (first, second), strict=True)
                )
                yield Edit(1, node.lineno, mistake, parts)


def in_the_same_way(one: str, becomes: str, other: str) -> str:
    """Return what a name becomes that changes as `one` does: "m_b" for d_a, m_a and d_b; "" if it cannot."""
    end = next((k for k in range(1, len(one)) if becomes.endswith(one[k:])), 0)
    head, tail = one[:end], one[end:]
    if end and other.startswith(head):
        return becomes[: len(becomes) - len(tail)] + other[end:]
    start = next((k for k in range(len(one) - 1, 0, -1) if becomes.startswith(one[:k])), 0)
    if start and other.endswith(one[start:]):
        return other[: len(other) - len(one[start:])] + becomes[start:]
    return ""


def _part_of_what_is_meant(
    source: Source, function: Function, whole: Mapping[int, ast.AST]
) -> Iterator[Edit]:
    """Put a sum or a product in place of one of its operands, which stands elsewhere in the statement."""
    for statement in function.nodes:
        if not isinstance(statement, ast.Assign | ast.AugAssign | ast.Return | ast.Expr):
            continue
        named = [one for one in names_in(statement) if isinstance(one.ctx, ast.Load)]
        sizes = {
            id(one) for node in ast.walk(statement) if called(node) == "arange" for one in ast.walk(node)
        }
        for larger in (node for node in ast.walk(statement) if isinstance(node, ast.BinOp)):
            if not isinstance(larger.op, ast.Add | ast.Mult) or any(
                "ptr" in one.id for one in names_in(larger)
            ):
                continue
            inside = {id(node) for node in ast.walk(larger)} | sizes
            operands = {one.id for one in (larger.left, larger.right) if isinstance(one, ast.Name)}
            for one in named:
                if one.id in operands and id(one) not in inside:
                    around = whole.get(id(one), statement)
                    code = source.text_of(around) if hasattr(around, "lineno") else one.id
                    mistake = f"`{one.id}` is the wrong value in {quoted(code)}"
                    yield Edit.of_node(source, 2, one, f"({source.text_of(larger)})", mistake)


def _of_a_decision(source: Source, function: Function, kinds: Mapping[str, Kind]) -> Iterator[Edit]:
    """Decide by the sum that is taken, or take the sum that is decided by: a value is one operand of it.

    As with a bias and what is below 0: both are of the sum that has the bias.
    """
    for node in function.nodes:
        match node:
            case ast.Compare(ast.Name() as one, _, [ast.Constant()]):
                used = [one]
            case ast.Call(args=[_, *given]) if called(node) == "where":
                used = [one for one in given if isinstance(one, ast.Name)]
            case _:
                continue
        for one in (each for each in used if kinds.get(each.id) in (Kind.VALUE, None)):
            sums = [
                larger
                for larger in function.nodes
                if isinstance(larger, ast.BinOp)
                and isinstance(larger.op, ast.Add)
                and one not in ast.walk(larger)
            ]
            for larger in sums:
                for operand, other in ((larger.left, larger.right), (larger.right, larger.left)):
                    if isinstance(operand, ast.Name) and operand.id == one.id:
                        lacks = f"lacks the term {quoted(source.text_of(other))}"
                        mistake = f"`{one.id}` {lacks} in {quoted(source.text_of(node))}"
                        yield Edit.of_node(source, 1, one, f"({source.text_of(larger)})", mistake)


def _smaller_elsewhere(source: Source, function: Function) -> Iterator[Edit]:
    """Take the smaller of a size and an end that another kernel takes, such as that of a share."""
    names = {*_visible(function)}
    for other in source.functions.values():
        if not other.kernel or other.name == function.name:
            continue
        for smaller in other.nodes:
            if called(smaller) not in ("min", "minimum") or not isinstance(smaller, ast.Call):
                continue
            sizes = {one.id for one in smaller.args if isinstance(one, ast.Name)}
            if not {one.id for one in names_in(smaller)} - {"tl"} <= names:
                continue
            for node in function.nodes:
                given = node.args if isinstance(node, ast.Call) else getattr(node, "comparators", [])
                for one in (each for each in given if isinstance(each, ast.Name) and each.id in sizes):
                    code, end = quoted(source.text_of(node)), quoted(source.text_of(smaller))
                    mistake = f"`{one.id}` is not the end in {code}: line {smaller.lineno} has {end}"
                    yield Edit.of_node(source, 1, one, source.text_of(smaller), mistake)


def _reduced(function: Function) -> list[str]:
    """Return the names that are bound to what a reduction gives, which may be one number."""
    found = []
    for node in function.nodes:
        match node:
            case ast.Assign([ast.Name(name)], ast.Call() as call) if called(call) in (*REDUCTIONS, "reduce"):
                found.append(name)
    return [*dict.fromkeys(found)]


def _a_number_for_lanes(
    source: Source, node: ast.Subscript, around: ast.AST, reduced: Sequence[str]
) -> Iterator[Edit]:
    """Put what a reduction gives in place of the numbers of lanes, `m[None, :]`."""
    axes = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    is_widened = any(isinstance(one, ast.Constant) and one.value is None for one in axes)
    if not (is_widened and isinstance(node.value, ast.Name) and hasattr(around, "lineno")):
        return
    for other in reduced:
        if other != node.value.id:
            mistake = f"{quoted(source.text_of(node))} is the wrong value in {quoted(source.text_of(around))}"
            yield Edit.of_node(source, 1, node, other, mistake)


def _visible(function: Function) -> list[str]:
    """Return the names that a function may use: its parameters, what it binds, and sizes of the module."""
    return list(dict.fromkeys((*function.parameters, *function.stored, *function.constants)))


class _Known(NamedTuple):
    """The names that a function may use, and what is known of them."""

    names: list[str]
    kinds: dict[str, Kind]
    unused: list[str]
    made: Mapping[str, set[str]]  # the operands of each that is bound to arithmetic
    multiplied: set[str]  # matrices that host code multiplies
    set_in: Mapping[str, str]  # where what is read once is set, in words
    limits: set[tuple[str, str]]  # a name, and the smaller of it and something else, such as what is left


def _other_names(
    source: Source, function: Function, node: ast.Name, around: ast.AST, known: _Known
) -> Iterator[Edit]:
    code = source.text_of(around) if hasattr(around, "lineno") else node.id
    for other in known.names:
        if other == node.id or not exchangeable(known.kinds.get(node.id), known.kinds.get(other)):
            continue
        if known.kinds.get(other) is Kind.STRIDE and isinstance(around, ast.Compare):
            continue  # no index or value is compared with a stride
        rank = _rank(function, node.id, around, other, known)
        mistake = f"`{node.id}`{known.set_in.get(node.id, '')} is the wrong value in {quoted(code)}"
        if known.kinds.get(other) is Kind.STRIDE and known.kinds.get(node.id) is not Kind.INDEX:
            mistake = f"`{node.id}` is the wrong step in {quoted(code)}: the memory has another stride"
        edit = Edit.of_node(source, rank, node, other, mistake)
        yield edit.avoiding() if isinstance(around, ast.If) else edit


def _rank(function: Function, name: str, around: ast.AST, other: str, known: _Known) -> int:
    """Return how common it is that a name stands in the place of another: 0 or 1 if it is likely."""
    alike = _alike(name, other)
    # A stride in the place of an index, or of the size of a block, is rare.
    step = known.kinds.get(other) is Kind.STRIDE and known.kinds.get(name) in (Kind.STRIDE, Kind.SIZE, None)
    step = step or (known.kinds.get(name) is Kind.STRIDE and known.kinds.get(other) is Kind.SIZE)
    related = other in known.made[name] or name in known.made[other]
    # What was handed in is handed back, and not what was made of it.
    handed_back = isinstance(around, ast.Return | ast.Tuple) and name in function.parameters
    # The mean of a block is none of a row.
    mean = (
        isinstance(around, ast.BinOp)
        and isinstance(around.op, ast.Div)
        and known.kinds.get(name) is Kind.CONSTANT
        and known.kinds.get(other) is Kind.SIZE
    )
    if alike and other in known.unused and other not in function.parameters:
        return 0  # it was set for something
    likely = (
        mean
        or (other in known.unused and (alike or step))
        or _of_one_tensor(function, name, other)
        or (known.kinds.get(other) is Kind.VALUE and related)
        # A number of blocks is easily taken for the index that is made of it.
        or (known.kinds.get(name) is known.kinds.get(other) is Kind.INDEX and name in known.made[other])
        or (not function.kernel and name in known.multiplied)  # few names are
        or (alike and handed_back)
        or (name, other) in known.limits
    )
    return 1 if likely else 2 if alike or step else 4


def _set_for_one_place(source: Source, function: Function) -> Mapping[str, str]:
    """Say of each name that is set once, and read in one line, where it is set: that may be wrong."""
    lines = defaultdict[str, set[int]](set)
    for one in names_in(function.node):
        if isinstance(one.ctx, ast.Load):
            lines[one.id].add(one.lineno)
    found = dict[str, str]()
    for node in function.nodes:
        match node:
            case ast.Assign([ast.Name(name)], ast.BinOp() | ast.Call() as value) if len(lines[name]) == 1:
                found[name] = f", which line {node.lineno} sets to {quoted(source.text_of(value))},"
    stores = Counter(one.id for one in names_in(function.node) if isinstance(one.ctx, ast.Store))
    return {name: words for name, words in found.items() if stores[name] == 1 and function.kernel}


def _multiplied(function: Function) -> set[str]:
    """Return the names of the matrices that host code multiplies."""
    found: set[str] = set()
    for node in function.nodes:
        is_product = isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult)
        if is_product or called(node) in ("mm", "matmul", "addmm", "linear"):
            found |= {one.id for one in names_in(node) if one.id != "torch"}
    return found


def _made_of(function: Function) -> Mapping[str, set[str]]:
    """Return the operands of each name that is bound to arithmetic, and what a name is the maximum or the sum
    of: one is easily taken for the other, as what a lane holds for what the row has.
    """
    found = defaultdict[str, set[str]](set)
    for node in function.nodes:
        match node:
            case ast.Assign([ast.Name(name)], value):
                while (
                    isinstance(value, ast.Call)
                    and called(value) == "to"
                    and isinstance(value.func, ast.Attribute)
                ):
                    value = value.func.value
                if isinstance(value, ast.BinOp):
                    operands = (value.left, value.right)
                    found[name] |= {one.id for one in operands if isinstance(one, ast.Name)} - {name}
                if called(value) in REDUCTIONS and isinstance(value, ast.Call) and value.args:
                    found[name] |= {one.id for one in value.args[:1] if isinstance(one, ast.Name)} - {name}
    return found


def limits(function: Function) -> set[tuple[str, str]]:
    """Return each name with the name of the smaller of it and something else."""
    found: set[tuple[str, str]] = set()
    for node in function.nodes:
        match node:
            case ast.Assign([ast.Name(name)], ast.Call(args=args) as smaller) if (
                called(smaller) in ("min", "minimum") and len(args) > 1
            ):
                found |= {(one.id, name) for one in args if isinstance(one, ast.Name)}
    return found


def _of_one_tensor(function: Function, one: str, other: str) -> bool:
    """Return whether two names are strides of one tensor, as the launch shows: often confused."""
    first, second = function.given.get(one), function.given.get(other)
    return first is not None and first == second and first.what == STRIDE


def _alike(one: str, other: str) -> bool:
    """Return whether two names look like the same kind of value: they share a word, or are both short."""
    if set(one.split("_")) & set(other.split("_")):
        return True
    return (len(one) <= 2 and len(other) <= 2) or (one.isupper() and other.isupper())
