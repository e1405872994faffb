"""Edits that make a statement like those near it: of lines that were written as one the odd one out is wrong.

Such inconsistencies of copied code are a common sign of mistakes (Li et al., CP-Miner, 2004).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from itertools import permutations

from grader.judge.repair.edit import Edit, quoted
from grader.judge.repair.names import in_the_same_way
from grader.judge.repair.source import Function, Source, is_start, names_in

NEAR = 4  # statements between two that were written as one
MOST_UNLIKE = 2  # places, beside the names that are assigned, in which two like statements differ


def edits(source: Source, function: Function) -> Iterator[Edit]:
    """Yield every edit that puts what a like statement has in place of a part of one, or exchanges both."""
    if function.kernel:
        yield from _of_the_other_series(source, function)
        yield from _not_moved_on(source, function)
        yield from _term_as_elsewhere(source, function)
        yield from _steps_as_elsewhere(source, function)
    for body in _bodies(function.node):
        for at, one in enumerate(body):
            for other in body[max(0, at - NEAR) : at]:
                if function.kernel:
                    yield from _of_the_other(source, one, other)
                    yield from _of_the_other(source, other, one)
                    yield from _copied(source, function, one, other)
                    yield from _updated_alike(source, function, one, other)
                    yield from _updated_alike(source, function, other, one)
                unlike = _unlike(one, other) or []
                if len(unlike) > MOST_UNLIKE or not isinstance(one, ast.Assign | ast.AugAssign | ast.Expr):
                    continue
                for mine, its in unlike:
                    if any(isinstance(getattr(part, "ctx", None), ast.Store) for part in (mine, its)):
                        continue  # what is assigned to
                    # A whole expression in place of another says little of how both are alike.
                    whole = mine is getattr(one, "value", None) and not isinstance(mine, ast.Name)
                    if function.kernel and not whole:
                        yield _as_in(source, one, mine, other, its)
                        yield _as_in(source, other, its, one, mine)
                    if is_start(mine) == is_start(its):  # else a value would only be left out
                        yield _exchanged(source, mine, its)


def _of_the_other(source: Source, one: ast.stmt, other: ast.stmt) -> Iterator[Edit]:
    """Use a statement's own name where it has that of another one, which updates it by the same text."""
    for mine, its, value in _with_one_value(one, other):
        for node in names_in(value):
            if node.id == its:
                mistake = f"`{its}` belongs in line {other.lineno}, and not in {quoted(source.text_of(one))}"
                yield Edit.of_node(source, 0, node, mine, mistake)


def _copied(source: Source, function: Function, one: ast.stmt, other: ast.stmt) -> Iterator[Edit]:
    """Give `scale_b` what is to `m_b` as `scale_a` is to `m_a`, where it has the value of `scale_a`."""
    visible = {*function.parameters, *function.stored, *function.constants}
    for mine, its, value in _with_one_value(one, other):
        becomes = {node: in_the_same_way(its, mine, node.id) for node in names_in(value)}
        known = {node: name for node, name in becomes.items() if name in visible}
        if any(name != node.id for node, name in known.items()):
            code = quoted(source.text_of(value))
            mistake = f"`{mine}` has the same value as `{its}` in line {other.lineno}: {code}"
            yield Edit(
                0, one.lineno, mistake, tuple((source.span(node), name) for node, name in known.items())
            )


def _with_one_value(one: ast.stmt, other: ast.stmt) -> Iterator[tuple[str, str, ast.expr]]:
    """Yield the two names that statements assign the same expression to, and that of the first."""
    match one, other:
        case ast.Assign([ast.Name(mine)], value), ast.Assign([ast.Name(its)], same):
            if mine != its and ast.dump(value) == ast.dump(same):
                yield mine, its, value


def _updated_alike(source: Source, function: Function, one: ast.stmt, other: ast.stmt) -> Iterator[Edit]:
    """Update `x_row` with `stride_x` as another statement updates `y_row` with `stride_y`."""
    match one, other:
        case ast.AugAssign(ast.Name(mine), op, value), ast.AugAssign(ast.Name(its), same, told):
            if type(op) is not type(same):
                return
        case _:
            return
    words = dict(zip(its.split("_"), mine.split("_"), strict=False))
    visible = {*function.parameters, *function.stored, *function.constants}
    parts = {one.id: "_".join(words.get(word, word) for word in one.id.split("_")) for one in names_in(told)}
    if len(its.split("_")) != len(mine.split("_")) or not visible.issuperset(parts.values()):
        return
    text = re.sub(r"\w+", lambda found: parts.get(found[0], found[0]), source.text_of(told))
    if text != source.text_of(value):
        mistake = f"`{mine}` is not updated as `{its}` is in line {other.lineno}"
        yield Edit.of_node(source, 1, value, f"({text})", mistake)


def _not_moved_on(source: Source, function: Function) -> Iterator[Edit]:
    """Move a pointer on in a loop as another one is moved that began at the same offsets."""
    begun: dict[str, list[tuple[str, str]]] = {}  # by the offsets, each pointer with where it began
    for node in function.nodes:
        match node:
            case ast.Assign([ast.Name(name)], ast.BinOp(ast.Name(pointer), ast.Add(), offsets)):
                begun.setdefault(ast.dump(offsets), []).append((name, pointer))
    alike = {one: [other for other, _ in pairs] for pairs in begun.values() for one, _ in pairs}
    for loop in (one for one in function.nodes if isinstance(one, ast.For | ast.While)):
        read = {one.id for one in names_in(loop) if isinstance(one.ctx, ast.Load)}
        moved = {
            node.target.id: node
            for node in loop.body
            if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name)
        }
        for name, node in moved.items():
            for other in alike.get(name, ()):
                if other not in moved and other in read:
                    end, value = source.span(node)[1], source.text_of(node.value)
                    sign = "+" if isinstance(node.op, ast.Add) else "-"
                    text = f"\n{' ' * node.col_offset}{other} {sign}= {value}"
                    mistake = f"`{other}` is not moved on in the loop, as `{name}` is"
                    yield Edit(0, node.lineno, mistake, (((end, end), text),))


def _term_as_elsewhere(source: Source, function: Function) -> Iterator[Edit]:
    """Add to a name what is added to it elsewhere in the kernel, such as where a program begins."""
    of: dict[str, dict[str, tuple[str, int]]] = {}
    within = set[int]()  # names that have something added
    for node in function.nodes:
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            for mine, other in ((node.left, node.right), (node.right, node.left)):
                if isinstance(mine, ast.Name) and isinstance(other, ast.Name):
                    of.setdefault(mine.id, {})[other.id] = source.text_of(node), node.lineno
                    within.add(id(mine))
    for node in function.nodes:
        if not (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)) or id(node) in within:
            continue
        for term, (text, line) in of.get(node.id, {}).items():
            if line != node.lineno:
                mistake = f"`{term}` is not added to `{node.id}`, as it is in line {line}"
                yield Edit.of_node(source, 1, node, f"({text})", mistake)


def _of_the_other_series(source: Source, function: Function) -> Iterator[Edit]:
    """Put names of another series in place of a call's names of one: `a` and `b` for `a_next` and `b_next`.

    Where blocks are loaded a step ahead, both are easily taken from the wrong step.
    """
    visible = {*function.parameters, *function.stored}
    every = sorted({part for name in visible for part in name.split("_")[1:]} | {""})
    for node in function.nodes:
        if not isinstance(node, ast.Call):
            continue
        given = [*node.args, *(one.value for one in node.keywords)]
        names = [one for one in given if isinstance(one, ast.Name) and one.id in function.stored]
        for series, ours in _series(names).items():
            for other in every:
                new = ["_".join(filter(None, [one.id.split("_")[0], other])) for one in ours]
                if other != series and len(ours) > 1 and visible.issuperset(new):
                    parts = tuple((source.span(one), name) for one, name in zip(ours, new, strict=True))
                    listed = " and ".join(f"`{one.id}`" for one in ours)
                    mistake = f"{listed} are the wrong values in {quoted(source.text_of(node))}"
                    yield Edit(1, node.lineno, mistake, parts)


def _series(names: Sequence[ast.Name]) -> dict[str, list[ast.Name]]:
    """Return names of one or two words by the second word, "" for none."""
    found: dict[str, list[ast.Name]] = {}
    for one in names:
        words = one.id.split("_")
        if len(words) <= 2:
            found.setdefault(words[1] if len(words) == 2 else "", []).append(one)
    return found


def _steps_as_elsewhere(source: Source, function: Function) -> Iterator[Edit]:
    """Let a loop step as another one over the same range does."""
    loops = [
        node.iter
        for node in function.nodes
        if isinstance(node, ast.For) and isinstance(node.iter, ast.Call) and len(node.iter.args) == 3
    ]
    for one, other in permutations(loops, 2):
        mine, its = one.args, other.args
        if [*map(ast.dump, mine[:2])] == [*map(ast.dump, its[:2])] and ast.dump(mine[2]) != ast.dump(its[2]):
            step = quoted(source.text_of(mine[2]))
            mistake = (
                f"the loop steps by {step}, and that of line {other.lineno} over the same range does not"
            )
            yield Edit.of_node(source, 1, mine[2], source.text_of(its[2]), mistake)


def _bodies(node: ast.AST) -> Iterator[Sequence[ast.stmt]]:
    for inner in ast.walk(node):
        for name in ("body", "orelse"):
            body = getattr(inner, name, None)
            if isinstance(body, list):
                yield body


def _as_in(source: Source, one: ast.stmt, mine: ast.expr, other: ast.stmt, its: ast.expr) -> Edit:
    code = f"{quoted(source.text_of(mine))} in {quoted(source.text_of(one))}"
    more = _more_than(source, mine, its)
    if more:
        mistake = f"{code} lacks `{more}`, which line {other.lineno} has"
    elif isinstance(its, ast.Name) and not isinstance(mine, ast.Name):
        mistake = f"{code} stands where line {other.lineno} has `{its.id}`"
    else:
        mistake = f"{code} is not as in line {other.lineno}"
    return Edit.of_node(source, 2, mine, _enclosed(source, its), mistake)


def _more_than(source: Source, mine: ast.expr, its: ast.expr) -> str:
    """Return the operator and operand that an expression has behind another one; "" where it is not so."""
    for node in ast.walk(its):
        if isinstance(node, ast.BinOp) and ast.dump(node.left) == ast.dump(mine):
            return source.between(source.span(node.left)[1], source.span(node)[1]).strip()
    return ""


def _exchanged(source: Source, mine: ast.expr, its: ast.expr) -> Edit:
    parts = (source.span(its), _enclosed(source, mine)), (source.span(mine), _enclosed(source, its))
    code = f"{quoted(source.text_of(its))} and {quoted(source.text_of(mine))} of line {mine.lineno}"
    return Edit(2, its.lineno, f"{code} are exchanged", parts)


def _enclosed(source: Source, node: ast.expr) -> str:
    text = source.text_of(node)
    return text if isinstance(node, ast.Name | ast.Constant | ast.Attribute) else f"({text})"


def _unlike(one: ast.AST, other: ast.AST) -> list[tuple[ast.expr, ast.expr]] | None:
    """Return the pairs of expressions in which two nodes differ; None if they were not written as one.

    What is assigned to may differ.
    """
    if ast.dump(one) == ast.dump(other):
        return []
    if isinstance(one, ast.Name | ast.Attribute) and isinstance(one.ctx, ast.Store):
        return [] if type(one) is type(other) else None
    alike, leaf = type(one) is type(other), ast.Name | ast.Constant | ast.Attribute
    if isinstance(one, ast.expr) and isinstance(other, ast.expr) and (not alike or isinstance(one, leaf)):
        return [(one, other)]
    if not alike:
        return None
    mine, others = [*ast.iter_child_nodes(one)], [*ast.iter_child_nodes(other)]
    if len(mine) != len(others):
        return None
    found = []
    for pair in zip(mine, others, strict=True):
        inner = _unlike(*pair)
        if inner is None:
            return None
        found += inner
    return found
