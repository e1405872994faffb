"""Find a mistake that shows only in rows of several blocks: with smaller blocks short rows have several, too.

With fewer programs each has several blocks in a small case, too.

Edits are tried where a call is short. What mends the short rows then has to mend the long ones, with the
blocks of the file itself.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from grader.course.spec import Case, Exercise
from grader.judge.contrast import keys, numbers
from grader.judge.repair.bench import Bench
from grader.judge.repair.edit import Edit
from grader.judge.repair.launched import kernel_of, pairs
from grader.judge.repair.search import NotRunError, Repair, Search
from grader.judge.repair.source import Function, Source, called, names_in
from grader.judge.trial import LIMIT_S, Trial, elements
from grader.worker.submission_worker import SubmissionWorker

SMALL = 16  # elements of a block; tl.dot takes no fewer
FEW = 4  # programs of a launch, where a number of the file limits them
BEFORE, AFTER = "min((", "), {})"  # around what sets the size of a block, or the number of programs
LONG = 8  # blocks of that size, at least, in the shortest wrong row
MOST_NAMES = 3  # that stand for each other, from a grid to a number that limits it
MOST_TRIED = 12  # cases that are called with smaller blocks


class Smaller(NamedTuple):
    """A text with smaller blocks, and the spans of what was put into it, in bytes of this text."""

    text: str
    added: Sequence[tuple[int, int]]
    is_limited: bool  # whether fewer programs run as well

    def in_the_file(self, edit: Edit) -> Edit | None:
        """Return an edit of this text as one of the file; None if it is of what was put in."""
        parts = []
        for (begin, end), text in edit.parts:
            if any(begin < last and first < end for first, last in self.added):
                return None
            shift = sum(last - first for first, last in self.added if last <= begin)
            parts.append(((begin - shift, end - shift), text))
        return replace(edit, parts=tuple(parts))


def is_long(failing: Sequence[Case], passing: Sequence[Case]) -> bool:
    """Return whether cases are wrong only where one of their sizes is large."""
    for key in keys(failing, passing):
        sizes, others = numbers(failing, key), numbers(passing, key)
        is_apart = len(sizes) == len(failing) and others and min(sizes) > max(others)
        if is_apart and min(sizes) >= LONG * SMALL:
            return True
    return False


def by_smaller_blocks(
    workers: Sequence[SubmissionWorker],
    text: str,
    exercise: Exercise,
    failing: Sequence[Case],
    passing: Sequence[Case],
    share: float,
    until: float = math.inf,
) -> Repair | None:
    """Return the edits that mend `failing`, of long rows, found with smaller blocks in `passing` ones.

    None if the blocks of the file are not known, or nothing is found. `share` is that of the usual work;
    `until` is as for a search.
    """
    source = Source(text)
    small = smaller_blocks(source, exercise.name)
    if small is None:
        return None
    wrong, right = _with_smaller_blocks(workers[0], small.text, exercise, passing)
    if not wrong:
        return None
    # With as many programs as blocks no program has two of them: that goes around what is wrong.
    hosts = [one.name for one in source.reached_from(exercise.name) if not one.kernel]
    settled = hosts if small.is_limited else ()
    search = Search(workers, small.text, exercise, wrong, right, settled, share=share, until=until)
    try:
        found = search.mend()
    except NotRunError:
        return None
    edits = [small.in_the_file(edit) for edit in found.edits] if found and not found.outputs else []
    mapped = [edit for edit in edits if edit is not None]
    if not mapped or len(mapped) < len(edits):
        return None
    bench = Bench(workers[0], exercise, failing, passing, 0)
    for edit in mapped if len(mapped) > 1 else ():  # the other one may only lead to the small blocks
        if bench.is_all(bench.mended_by(source.with_replaced(edit.parts))) and bench.keeps():
            return Repair((edit,))
    after = source.with_replaced([part for edit in mapped for part in edit.parts])
    mended = bench.mended_by(after)
    if not mended or not bench.keeps():
        return None
    if bench.is_all(mended):
        return Repair(tuple(mapped))
    return Repair(tuple(mapped), bench.names(mended)) if all(edit.is_local for edit in mapped) else None


def _with_smaller_blocks(
    worker: SubmissionWorker, text: str, exercise: Exercise, passing: Sequence[Case]
) -> tuple[list[Case], list[Case]]:
    """Return which cases that are right are wrong with smaller blocks, and which are not."""
    wrong, right = list[Case](), list[Case]()
    for case in sorted(passing, key=elements)[:MOST_TRIED]:
        if worker.start() or worker.edit(text, LIMIT_S):
            return [], []
        is_right = Trial(exercise, case, worker.session.seed).right(worker, bounds=True) == 1.0
        (right if is_right else wrong).append(case)
    return wrong, right


def smaller_blocks(source: Source, function: str) -> Smaller | None:
    """Return the text with at most SMALL elements in the blocks of what `function` launches, and with at most
    FEW programs where a number of the file limits them.
    """
    values: dict[tuple[int, int], tuple[ast.expr, int]] = {}
    for caller in source.reached_from(function):
        for call in (node for node in ast.walk(caller.node) if isinstance(node, ast.Call)):
            name = "" if caller.kernel else kernel_of(caller.node, call, source.functions)
            kernel = source.functions.get(name)
            if kernel is None or not kernel.kernel:
                continue
            for parameter, value in pairs(kernel.node, call):
                if parameter in _lanes(kernel) - source.tuned:
                    bound = _bound(source, caller, value)
                    values[source.span(bound)] = bound, SMALL
            grid = call.func.slice if isinstance(call.func, ast.Subscript) else None
            for limit in _limits(source, caller, grid, MOST_NAMES) if grid else ():
                values.setdefault(source.span(limit), (limit, FEW))
    return _wrapped(source, values) if values else None


def _lanes(kernel: Function) -> set[str]:
    """Return the constants of a kernel that count the lanes of a block."""
    ranges = (node for node in ast.walk(kernel.node) if called(node) == "arange")
    return {one.id for node in ranges for one in names_in(node)} & kernel.constexprs


def _bound(source: Source, caller: Function, value: ast.expr) -> ast.expr:
    """Return what a name is bound to, or returns, in host code or in the module: a grid may read it, too."""
    if isinstance(value, ast.Name):
        nodes = (*ast.walk(caller.node), *source.tree.body)
        for node in nodes:
            match node:
                case ast.Assign([ast.Name(name)], bound) if name == value.id:
                    return bound
                case ast.FunctionDef(name=name, body=[*_, ast.Return(ast.expr() as bound)]) if (
                    name == value.id
                ):
                    return bound
    return value


def _limits(source: Source, caller: Function, count: ast.expr, left: int) -> Iterator[ast.expr]:
    """Give the numbers of the file that limit how many programs `count` gives, as in `min(tiles, 132)`."""
    for node in ast.walk(count):
        match node:
            case ast.Call(func=ast.Name("min"), args=args):
                for one in args:
                    bound = _bound(source, caller, one)
                    if isinstance(bound, ast.Constant) and type(bound.value) is int and bound.value > FEW:
                        yield one
            case ast.Name() if left and (bound := _bound(source, caller, node)) is not node:
                yield from _limits(source, caller, bound, left - 1)


def _wrapped(source: Source, values: Mapping[tuple[int, int], tuple[ast.expr, int]]) -> Smaller:
    added, shift = list[tuple[int, int]](), 0
    parts = []
    for (begin, end), (node, most) in sorted(values.items()):
        after = AFTER.format(most)
        for place, put in ((begin, BEFORE), (end, after)):
            added.append((place + shift, place + shift + len(put)))
            shift += len(put)
        parts.append(((begin, end), f"{BEFORE}{source.text_of(node)}{after}"))
    is_limited = any(most == FEW for _, most in values.values())
    return Smaller(source.with_replaced(parts), added, is_limited)
