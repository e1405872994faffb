"""Say that two outputs have each other's values, found by exchanging them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from grader.course.spec import Case, Exercise
from grader.judge.trial import Trial
from grader.worker.submission_worker import SubmissionWorker


def exchanged_outputs(worker: SubmissionWorker, exercise: Exercise, cases: Sequence[Case]) -> str:
    """Say which two outputs of the worker's present file are exchanged in the first of some wrong cases.

    "" if none are, if anything else is wrong, if the call fails, or if outputs follow from a random choice.
    The case runs in the interpreter.
    """
    if not cases or len(exercise.outputs) < 2 or exercise.follow is not None:
        return ""
    trial = Trial(exercise, cases[0], worker.session.seed)
    called = trial.call(worker)
    if called is None:
        return ""
    outputs, right = called.outputs, trial.right_outputs(called)
    for one, other in combinations([at for at, is_right in enumerate(right) if not is_right], 2):
        if outputs[one].shape != outputs[other].shape:
            continue
        turned = [*outputs]
        turned[one], turned[other] = outputs[other], outputs[one]
        if all(trial.right_outputs(called._replace(outputs=turned))):
            first, second = exercise.outputs[one], exercise.outputs[other]
            return f"`{first}` gets what belongs in `{second}`, and `{second}` what belongs in `{first}`"
    return ""
