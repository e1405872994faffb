"""Find a division of host code that rounds down, and leaves elements to no program."""

from __future__ import annotations

from collections.abc import Sequence

from grader.course.spec import Case, Exercise
from grader.judge.repair.candidates import candidates
from grader.judge.repair.edit import PARTIAL_BLOCK, Edit
from grader.judge.repair.source import Source
from grader.judge.trial import LIMIT_S, MOST_ELEMENTS, Trial, elements
from grader.worker.submission_worker import SubmissionWorker

MOST_CASES = 2  # that are called
MOST_DIVISIONS = 8  # that are rounded up, one after the other


def rounded_down(worker: SubmissionWorker, exercise: Exercise, cases: Sequence[Case], text: str) -> str:
    """Say which division is rounded down; "" if none is, with which elements of `cases` are right.

    `text` is the file, and `cases` leave elements unwritten. Rounded up, programs may reach past the end: the
    kernel then needs a condition besides, so that only the elements of the outputs are compared.
    SyntaxError if the file is not Python.
    """
    source = Source(text)
    asked = [one for one in cases if elements(one) <= MOST_ELEMENTS and not (one.needs_gpu or one.is_far)]
    host = [one for one in source.functions.values() if not one.kernel]
    edits = [
        edit
        for edit in candidates(source, exercise.name)
        if PARTIAL_BLOCK in edit.mistake
        and len(edit.parts) == 1
        and any(one.node.lineno <= edit.line <= (one.node.end_lineno or 0) for one in host)
    ]
    trials = [Trial(exercise, case, worker.session.seed) for case in asked[:MOST_CASES]]
    try:
        for edit in edits[:MOST_DIVISIONS] if trials else ():
            if all(_is_right(worker, trial, source, edit) for trial in trials):
                return f"line {edit.line}: {edit.mistake}"
    finally:
        if not worker.start():
            worker.edit(text, LIMIT_S)
    return ""


def _is_right(worker: SubmissionWorker, trial: Trial, source: Source, edit: Edit) -> bool:
    if worker.start() or worker.edit(source.with_replaced(edit.parts), LIMIT_S):
        return False
    called = trial.call(worker)
    return called is not None and all(trial.right_outputs(called))
