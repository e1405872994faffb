"""Wrong cases that are right with the configs of autotuned kernels with which another wrong case is right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from grader.course.spec import Case, Exercise
from grader.judge.trial import MOST_ELEMENTS, Trial, elements
from grader.worker.submission_worker import SubmissionWorker

MOST_CASES = 8  # that are called


def right_with(
    worker: SubmissionWorker, exercise: Exercise, failing: Sequence[Case], configs: Mapping[str, str]
) -> set[str]:
    """Return the names of wrong cases that are right with these configs, by kernel; they run on a CPU."""
    found = set[str]()
    for case in [one for one in failing if elements(one) <= MOST_ELEMENTS][:MOST_CASES]:
        trial = Trial(exercise, replace(case, configs=configs), worker.session.seed)
        called = None if worker.start() else trial.call(worker)
        if called and called.is_clean and all(trial.right_outputs(called)):
            found.add(case.name)
    return found
