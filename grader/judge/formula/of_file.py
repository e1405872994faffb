"""Which formula the wrong outputs of a file follow: they are computed here, with two sets of inputs."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from grader.course.spec import Case, Exercise
from grader.judge import comparison
from grader.judge.formula.search import follows, formula_of
from grader.judge.formula.terms import terms_of
from grader.judge.inputs import in_dtype
from grader.judge.trial import Trial
from grader.worker.submission_worker import SubmissionWorker

MOST_CASES = 2  # that are looked at
MOST_ELEMENTS = 1 << 16  # of an output


def formula_of_file(worker: SubmissionWorker, exercise: Exercise, failing: Sequence[Case]) -> str:
    """Return in words which formula a wrong output of the worker's present file follows; "" if none is found.

    `failing` are wrong cases that run in the interpreter, the preferred ones first. The formula must hold for
    every element, with both sets of inputs.
    """
    if exercise.follow is not None:  # its outputs depend on a random choice
        return ""
    single = [case for case in failing if case.dtype == "fp32" and not case.is_far]
    for case in single[:MOST_CASES]:
        trials = [Trial(exercise, case, worker.session.seed, drawn=drawn) for drawn in range(2)]
        called = [trial.call(worker) for trial in trials]
        first, second = called
        if first is None or second is None:
            continue
        finding, _ = comparison.examine(exercise, case, trials[0].expected, first.outputs)
        k = exercise.outputs.index(finding.output) if finding else 0
        got, again = first.outputs[k].double(), second.outputs[k].double()
        if finding is None or got.numel() > MOST_ELEMENTS:
            continue
        terms, others = (terms_of(exercise.reference, in_dtype(one.values, torch.float64)) for one in trials)
        found = formula_of(terms, got)
        if found and bool(follows(again.reshape(-1), found.of(others, again.shape).reshape(-1))):
            return f"the values in `{finding.output}` are those of `{found.text}`"
    return ""
