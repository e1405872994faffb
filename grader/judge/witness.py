"""Decide by what the interpreter saw: an access outside of a tensor, or a race, takes a case's points away.

A worker tells it, so it is not trusted: it can only cost points, and an empty record gives none.
"""

from __future__ import annotations

from dataclasses import replace

from grader.course.spec import Case, Lab, Reason, Verdict
from grader.course.symptoms import Symptom
from grader.judge import diagnosis, facts
from grader.judge.comparison import Finding
from grader.results.error_map import map_of
from grader.results.outcome import Outcome
from grader.worker.witness.record import Outside, Witnessed


def written_outside(lab: Lab, case: Case, seen: Witnessed) -> Outcome | None:
    """Return the outcome of a call in which a kernel stored outside of a tensor; None if none did."""
    for fact in seen.outside:
        if fact.writes:
            symptom = Symptom.PADDED_WRITE if _is_padded(case) else Symptom.OUT_OF_BOUNDS_WRITE
            return _outside(lab, fact, Reason.WRITE, symptom)
    return None


def read_outside(lab: Lab, case: Case, seen: Witnessed, finding: Finding | None) -> Outcome | None:
    """Return the outcome of a call in which a kernel loaded from outside of a tensor; None if none did.

    `finding` says which elements are wrong, if any.
    """
    for fact in seen.outside:
        if not fact.writes:
            masked = Symptom.OUT_OF_BOUNDS_READ if _is_padded(case) else Symptom.UNMASKED_READ
            symptom = masked if fact.masked else Symptom.NO_MASK
            return _outside(lab, fact, Reason.READ, symptom, finding)
    return None


def _is_padded(case: Case) -> bool:
    return any(layout.has_gaps for layout in case.layouts.values())


def _outside(
    lab: Lab, fact: Outside, reason: Reason, symptom: Symptom, finding: Finding | None = None
) -> Outcome:
    where, cause = facts.outside(fact), facts.cause_outside(fact)
    outcome = diagnosis.diagnosed(lab, Verdict.OUT_OF_BOUNDS, reason, symptom, where, finding)
    error_map = map_of(finding) if finding else None
    return replace(outcome, cause=cause, plain_cause=cause, error_map=error_map)


def race(lab: Lab, seen: Witnessed) -> Outcome | None:
    """Return the outcome of a call with two programs that race; None if no two do."""
    if not seen.races:
        return None
    fact = seen.races[0]
    outcome = diagnosis.diagnosed(lab, Verdict.WRONG, Reason.RACE, Symptom.RACE, facts.race(fact))
    cause = facts.cause_race(fact)
    return replace(outcome, cause=cause, plain_cause=cause)
