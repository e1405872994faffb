"""Whether a case is wrong because of the layout of a tensor: the same case in the usual layout says so."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from grader.course.spec import WRONG_RESULTS, Case, Exercise, Lab, Layout, Reason, Verdict
from grader.course.symptoms import Symptom
from grader.judge.diagnosis import cause_of
from grader.results.outcome import Outcome

WRONG = (*WRONG_RESULTS, Verdict.CRASHED)
GAP = 8  # elements between rows that are not far apart any more


def explained(
    lab: Lab,
    exercise: Exercise,
    case: Case,
    grade: Callable[[Case], Outcome],
    wrapping: Callable[[], str | None] = lambda: None,
) -> Outcome:
    """Return the outcome of a case; where its layout alone makes it wrong, with that as the cause.

    A wrong case with rows far apart is graded once more with a small gap between them, and one with a dy as
    only autograd hands it over in the usual layout. If it is wrong there as well, that outcome is returned:
    it is not about how far the rows are, or about dy. Nor is a result that is another in a second call: with
    the usual layout it may be the same twice by chance. `wrapping` says of the last graded case where an
    offset wraps around: "" if none does, for the case is then right with close rows by chance; None if that
    was not looked for.
    """
    outcome = grade(case)
    wraps = wrapping() if case.is_far else None
    symptom, layouts = _unusual(exercise, case)
    other = outcome.reason in (Reason.RETURNED, Reason.NONDETERMINISTIC)
    if symptom is None or outcome.verdict not in WRONG or other:
        return outcome
    usual = grade(replace(case, layouts=layouts))
    if usual.verdict is not Verdict.PASS:
        return usual
    if wraps == "":
        return outcome
    found = cause_of(lab, symptom)
    cause = wraps or found.cause
    plain = cause if case.is_far else outcome.plain_cause  # says more than where the address led
    return replace(outcome, cause=cause, plain_cause=plain, hint=found.hint, symptom=symptom)


def near(case: Case) -> Case:
    """Return a case with a small gap between the rows that lie far apart."""
    layouts = {
        name: replace(one, far=False, pad=one.pad or GAP) if one.far else one
        for name, one in case.layouts.items()
    }
    return replace(case, layouts=layouts)


def _unusual(exercise: Exercise, case: Case) -> tuple[Symptom | None, Mapping[str, Layout]]:
    """Return what an unusual layout of a case is a test for, and the case's layouts without it."""
    if case.is_far:
        return Symptom.OFFSETS_WRAP, near(case).layouts
    of_dy = case.layouts.get("dy")
    if exercise.differentiable and of_dy:
        return Symptom.DY_LAYOUT, {name: one for name, one in case.layouts.items() if name != "dy"}
    return None, case.layouts
