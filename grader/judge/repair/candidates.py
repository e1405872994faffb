"""All edits of a file that may mend one of its functions, the most common mistakes first."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeGuard

from grader.judge.repair import (
    addresses,
    autograd,
    axes,
    blocks,
    calls,
    constants,
    functions,
    groups,
    host,
    ingredients,
    insertions,
    lanes,
    masks,
    names,
    operators,
    parts,
    passes,
    siblings,
    statements,
    terms,
    updates,
)
from grader.judge.repair.edit import ASKS_NOTHING, CONDITION_OF_COPY, REMOVES, Edit, wrong_condition
from grader.judge.repair.kinds import Kind, kinds_of
from grader.judge.repair.source import ALLOCATING, Function, Source, called, names_in

MODULES = (
    autograd, operators, calls, functions, host, statements, passes, updates, axes, blocks, siblings,
    ingredients, groups, addresses, parts, terms, lanes, masks, insertions, names, constants,
)  # fmt: skip


def candidates(source: Source, function: str, settled: Collection[str] = ()) -> list[Edit]:
    """Return the edits of what `function` runs, the most likely first, each new text of the file once.

    Functions that are `settled` are left as they are, but for what runs under a condition: whoever settled
    them may not have run it.

    A mistake is often made in several places: edits that replace the same text by the same are tried together
    as well. Of two kinds of edits that are as common the one with fewer edits comes first: each of them is
    more likely.
    """
    reached = source.reached_from(function)
    branches = [node for one in reached if one.name in settled for node in one.branches]
    under = {name.id for node in branches for name in names_in(node)}
    spans = [source.span(node) for node in branches]
    divisors = {  # with `/`, and the sizes of their kernels
        source.span(node.right): [name for name, kind in kinds_of(one).items() if kind is Kind.SIZE]
        for one in reached
        if one.kernel
        for node in one.nodes
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div)
    }
    made = {pair for one in reached for pair in names.limits(one)}
    singles = [
        edit
        for module in MODULES
        for one in reached
        for edit in module.edits(source, one)
        if (one.name not in settled or one.name in under or _is_within(edit, spans))
        and not _tunes(source, edit, divisors, made)
    ]
    choices = [node for one in reached if not one.kernel for node in _choices(one)]
    decided = [
        *(one.test for one in choices),
        *(one.test for of in reached if not of.kernel for one in of.nodes if _lets_run(one)),
        *(test for one in reached if not one.kernel for test in _handed_on(one)),
    ]
    tests, whole = ([source.span(one) for one in of] for of in (decided, choices))
    singles = [
        _of_a_choice(source, edit, decided)
        if _may_go_around(edit) and _is_within(edit, tests)
        else edit.avoiding()
        if _may_go_around(edit) and REMOVES[0] in edit.kind and _is_within(edit, whole)
        else edit
        for edit in singles
    ]
    found: dict[str, Edit] = {}
    for edit in sorted((*singles, *_together(source, singles)), key=lambda edit: edit.rank):
        text = source.with_replaced(edit.parts)
        if text != source.text:
            found.setdefault(text, edit)
    many = Counter((edit.rank, edit.kind) for edit in found.values())
    return sorted(found.values(), key=lambda edit: -(2.0**-edit.rank) / many[edit.rank, edit.kind] ** 0.5)


def _may_go_around(edit: Edit) -> bool:
    """Return whether an edit of a condition may only go around what is wrong in what that lets run."""
    return CONDITION_OF_COPY not in edit.kind and ASKS_NOTHING not in edit.kind


def _is_within(edit: Edit, spans: Sequence[tuple[int, int]]) -> bool:
    return all(any(begin <= at and end <= until for begin, until in spans) for (at, end), _ in edit.parts)


def _of_a_choice(source: Source, edit: Edit, tests: Sequence[ast.expr]) -> Edit:
    """Return an edit of a condition as one of the whole: any that avoids a wrong way mends, so that what it
    changes is no cause by itself.
    """
    (test,) = [one for one in tests if _is_within(edit, [source.span(one)])][:1]
    return replace(edit, mistake=wrong_condition(source.text_of(test)), detail=edit.detail or edit.mistake)


def _choices(function: Function) -> Iterator[ast.If]:
    """Give the statements by which host code chooses what a kernel gets, or which one is launched: otherwise
    one way is avoided.

    Not those by which a tensor is made or copied.
    """
    making = {*ALLOCATING, "contiguous"}
    for node in function.nodes:
        if isinstance(node, ast.If) and all(
            (isinstance(one, ast.Assign) and called(one.value) not in making)
            or (isinstance(one, ast.Expr) and isinstance(one.value, ast.Call) and node.orelse)
            for one in node.body
        ):
            yield node


def _lets_run(node: ast.AST) -> TypeGuard[ast.If]:
    """Return whether a statement only decides whether something is called, such as a launch."""
    return (
        isinstance(node, ast.If)
        and not node.orelse
        and all(isinstance(one, ast.Expr) and isinstance(one.value, ast.Call) for one in node.body)
    )


def _handed_on(function: Function) -> Iterator[ast.expr]:
    """Give the conditions that host code names, returns, or passes to a kernel, where they are decided on."""
    for node in function.nodes:
        match node:
            case ast.Assign([ast.Name()], ast.Compare() | ast.BoolOp() as test):
                yield test
            case ast.Return(ast.Compare() | ast.BoolOp() as test):
                yield test
            case ast.Call(keywords=keywords):
                yield from (one.value for one in keywords if isinstance(one.value, ast.Compare | ast.BoolOp))


def _tunes(
    source: Source,
    edit: Edit,
    divisors: Mapping[tuple[int, int], Collection[str]],
    made: Collection[tuple[str, str]],
) -> bool:
    """Return whether an edit writes something else for a parameter that the configs set.

    Each value of it is right in a right file, and another often hides a mistake. Only a parameter of the
    same kind, such as another BLOCK, may be meant in its place, where no call hands it on as itself. Where
    a size may be meant: as one of the `divisors`, because the mean of a block is none of a row. So may what
    is `made` of the parameter, such as the height of a group that ends before.
    """
    for (begin, end), text in edit.parts:
        name = source.between(begin, end)
        if (
            text not in divisors.get((begin, end), ())
            and (name, text) not in made
            and name in source.tuned
            and (
                (begin, end) in source.handed_on
                or text not in source.tuned
                or text.partition("_")[0] != name.partition("_")[0]
            )
        ):
            return True
    return False


def _together(source: Source, singles: Iterable[Edit]) -> list[Edit]:
    """Return an edit for each replacement that is possible in several places, or in calls of one function."""
    same: dict[tuple[str, ...], list[Edit]] = {}
    for edit in singles:
        if len(edit.parts) == 1:
            ((begin, end), text) = edit.parts[0]
            old, before = source.between(begin, end), edit.mistake.partition("(")[0]
            same.setdefault((old, text), []).append(edit)
            same.setdefault((old, text, before), []).append(edit)
    several = []
    for edits in same.values():
        parts = tuple(dict.fromkeys(edit.parts[0] for edit in edits))
        if len(parts) > 1:
            first = min(edits, key=lambda edit: edit.line)
            lines = sorted({edit.line for edit in edits})
            more = f" (and so in line {', '.join(map(str, lines[1:]))})" if len(lines) > 1 else ""
            several.append(Edit(first.rank, first.line, first.mistake + more, parts))
    return several
