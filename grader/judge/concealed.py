"""Remove the data of a hidden case from its outcome."""

from __future__ import annotations

from grader.course.spec import Verdict
from grader.results.outcome import Outcome

INSTEAD = "a hidden case: its sizes and values are not shown"


def concealed(outcome: Outcome) -> Outcome:
    """Return what may be shown of a hidden case's outcome: verdict, reason, cause and hint, but no data."""
    if outcome.verdict is Verdict.PASS:
        return Outcome(outcome.verdict, share=outcome.share)
    where = INSTEAD
    if outcome.verdict is Verdict.NOT_GRADED:
        where = "needs a GPU"
    elif outcome.verdict is Verdict.GRADER_FAULT and not outcome.reason:
        where = f"{outcome.fault} at a hidden case"
    elif outcome.verdict is Verdict.GRADER_FAULT:
        where = outcome.where  # about the case as a whole, for its author
    return Outcome(
        outcome.verdict,
        outcome.reason,
        outcome.share,
        where=where,
        needs_gpu=outcome.verdict is Verdict.NOT_GRADED,
        cause=outcome.cause,
        hint=outcome.hint,
    )
