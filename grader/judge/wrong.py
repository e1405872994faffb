"""An exercise with a wrong case: what was answered for its cases, and what of that is to be explained."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import NamedTuple

from grader.course.items import CaseItem
from grader.course.spec import WRONG_RESULTS, Case, Exercise, Reason, Verdict
from grader.course.submission import Submission
from grader.judge.error_causes.shapes import UNLIKE, UNLIKE_IN_DOT
from grader.judge.repair.search import Repair, lay
from grader.judge.trial import elements
from grader.results.outcome import Outcome
from grader.worker.submission_worker import SubmissionWorker

PLAIN_REASONS = (
    Reason.STALE,
    Reason.NONDETERMINISTIC,
    Reason.RETURNED,
    Reason.RACE,
)  # they say by themselves what is wrong
RARE = 1e-3  # share of the elements
MOST_WRONG = 0.9  # share of the elements, from which a wrong result has no right part
UNCLEAR = (UNLIKE, UNLIKE_IN_DOT)  # what an error says of shapes, and not where they come from


class Wrong(NamedTuple):
    """An exercise with a wrong case: what was answered for its cases, and its file."""

    exercise: Exercise
    submission: Submission
    answers: Sequence[tuple[CaseItem, Outcome]]
    right: Collection[str] = ()  # other exercises of the file, of which every case is right
    beside: Sequence[tuple[Exercise, Case]] = ()  # a few of these cases
    repair: Repair | None = None  # with which what is left is looked at: another mistake shows by itself

    def begin(self, worker: SubmissionWorker) -> bool:
        """Start a worker with the file, and with its repair; return whether it runs."""
        if worker.start():
            return False
        if self.repair:
            lay(worker, self.submission.text, self.repair)
        return True

    def cases(self, right: bool, hidden: bool = True) -> list[Case]:
        """Return the cases that are right or wrong, by size; without hidden ones their sizes may be shown."""
        found = [
            item.case
            for item, outcome in self.answers
            if (outcome.verdict is Verdict.PASS if right else is_open(outcome))
            and (hidden or not item.case.label)
        ]
        return sorted(found, key=elements)


def is_open(outcome: Outcome) -> bool:
    """Return whether the cause of an outcome is looked for: it is wrong, and does not say by itself why."""
    return (outcome.verdict in WRONG_RESULTS and outcome.reason not in PLAIN_REASONS) or is_unclear(outcome)


def is_unclear(outcome: Outcome) -> bool:
    """Return whether a file fails, and its error says no more than where, or that shapes are unlike."""
    return outcome.verdict is Verdict.CRASHED and (not outcome.cause or outcome.cause.startswith(UNCLEAR))


def seen_apart(wrong: Wrong) -> set[str]:
    """Return the names of wrong cases of which something was seen to be wrong, if others lack that."""
    failed = [(item.case.name, outcome) for item, outcome in wrong.answers if is_open(outcome)]
    seen = {name for name, outcome in failed if outcome.plain_cause}
    return seen if len(seen) < len(failed) else set()


def share_wrong(outcome: Outcome) -> float:
    """Return the share of wrong elements; 0 where it was not counted."""
    found = outcome.error_map
    return found.wrong / max(math.prod(found.shape), 1) if found else 0.0


def is_wrong_throughout(wrong: Wrong) -> bool:
    """Return whether no case is right, and most elements of each are wrong numbers.

    With too few programs, or a wrong stride, some cases are right, or some elements are.
    """
    failed = [outcome for _, outcome in wrong.answers if is_open(outcome)]
    return not wrong.cases(right=True) and all(
        one.reason is Reason.MISMATCH and share_wrong(one) > MOST_WRONG for one in failed
    )


def is_rare(outcome: Outcome) -> bool:
    """Return whether few elements are wrong: of a random choice any other numbers may have none of these."""
    found = outcome.error_map
    return found is not None and found.wrong < RARE * math.prod(found.shape)


def with_configs(item: CaseItem, outcome: Outcome) -> CaseItem:
    """Return a case with the configs with which alone it is wrong."""
    return replace(item, case=replace(item.case, configs=outcome.configs)) if outcome.configs else item
