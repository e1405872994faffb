"""Find a division of host code that rounds down, and leaves elements to no program."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from grader.course.spec import Case, Exercise
from grader.judge.repair.edit import PARTIAL_BLOCK, Edit, quoted
from grader.judge.repair.source import Source
from grader.judge.trial import LIMIT_S, MOST_ELEMENTS, Trial, elements
from grader.worker.submission_worker import SubmissionWorker

MOST_CASES = 2  # that are called
MOST_OF_ONE = 1 << 21  # elements of a case, if there is no smaller one
LONG_LIMIT_S = 10.0  # of its call
MOST_DIVISIONS = 8  # that are rounded up, one after the other


def rounded_down(worker: SubmissionWorker, exercise: Exercise, cases: Sequence[Case], text: str) -> str:
    """Say which division is rounded down; "" if none is, with which elements of `cases` are right.

    `text` is the file, and `cases` leave elements unwritten. Rounded up, programs may reach past the end: the
    kernel then needs a condition besides, so that only the elements of the outputs are compared.
    SyntaxError if the file is not Python.
    """
    source = Source(text)
    runs = [one for one in cases if not (one.needs_gpu or one.is_far)]
    asked = [one for one in runs if elements(one) <= MOST_ELEMENTS]
    asked = asked or [one for one in runs if elements(one) <= MOST_OF_ONE][:1]
    host = [one for one in source.reached_from(exercise.name) if not one.kernel]
    edits = [edit for one in host for node in ast.walk(one.node) for edit in _rounded_up(source, node)]
    trials = [Trial(exercise, case, worker.session.seed) for case in asked[:MOST_CASES]]
    try:
        if not trials or any(_is_right(worker, trial, text) for trial in trials):
            return ""
        for edit in edits[:MOST_DIVISIONS]:
            rounded = source.with_replaced(edit.parts)
            if all(_is_right(worker, trial, rounded) for trial in trials):
                return f"line {edit.line}: {edit.mistake}"
    finally:
        if not worker.start():
            worker.edit(text, LIMIT_S)
    return ""


def _rounded_up(source: Source, node: ast.AST) -> Iterator[Edit]:
    """Round a division up, but for one that does so already: `(n + step - 1) // step`."""
    match node:
        case ast.BinOp(left, ast.FloorDiv(), right) if not isinstance(left, ast.BinOp | ast.UnaryOp):
            text = f"triton.cdiv({source.text_of(left)}, {source.text_of(right)})"
            mistake = f"{quoted(source.text_of(node))} {PARTIAL_BLOCK}"
            yield Edit.of_node(source, 0, node, text, mistake)


def _is_right(worker: SubmissionWorker, trial: Trial, text: str) -> bool:
    if worker.start() or worker.edit(text, LIMIT_S):
        return False
    limit_s = LIMIT_S if elements(trial.case) <= MOST_ELEMENTS else LONG_LIMIT_S
    called = trial.call(worker, limit_s=limit_s)
    return called is not None and all(trial.right_outputs(called))
