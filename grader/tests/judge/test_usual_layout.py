"""A layout is named as the cause where the usual layout is right, and where that says something."""

import pytest

from grader.course import catalog
from grader.course.spec import PLAIN, Reason, Verdict
from grader.course.symptoms import Symptom
from grader.judge.usual_layout import explained
from grader.results.outcome import Outcome

ENTRY = next(one for one in catalog.find() if one.folder.name == "lab4_production_slice")
EXERCISE = next(one for one in ENTRY.lab.exercises if one.name == "layer_norm")
CASE = next(case for case in EXERCISE.cases if case.layouts.get("dy", PLAIN).transposed)


def graded_as(reason):
    """A grade that is wrong for this reason with an unusual dy alone."""
    wrong = Outcome(Verdict.WRONG, reason)
    return lambda case: wrong if "dy" in case.layouts else Outcome(Verdict.PASS)


@pytest.mark.parametrize(
    ("reason", "symptom"), [(Reason.MISMATCH, Symptom.DY_LAYOUT), (Reason.NONDETERMINISTIC, None)]
)
def test_the_layout_of_dy_is_no_cause_of_a_result_that_differs_in_a_second_call(reason, symptom):
    assert explained(ENTRY.lab, EXERCISE, CASE, graded_as(reason)).symptom is symptom


FAR = next(
    (exercise, case)
    for exercise in ENTRY.lab.exercises
    for case in exercise.cases
    if case.is_far and not case.needs_gpu
)


@pytest.mark.parametrize("seen", [None, "line 7 wraps"])
def test_of_rows_far_apart_the_line_is_the_cause_that_was_seen_to_wrap_around(seen):
    exercise, case = FAR
    graded = []

    def grade(one):
        graded.append(one)
        return Outcome(Verdict.WRONG if one.is_far else Verdict.PASS, Reason.MISMATCH)

    found = explained(ENTRY.lab, exercise, case, grade, lambda: seen if graded[-1].is_far else "of another")
    general = explained(ENTRY.lab, exercise, case, grade).cause
    assert found.cause == found.plain_cause == (seen or general)
    assert found.symptom is Symptom.OFFSETS_WRAP


def test_rows_far_apart_are_no_cause_where_no_offset_wraps_around():
    """Of other values, or by chance, close rows may be right: in fp16 some are 0."""
    exercise, case = FAR
    found = explained(
        ENTRY.lab,
        exercise,
        case,
        lambda one: Outcome(Verdict.WRONG if one.is_far else Verdict.PASS, Reason.MISMATCH),
        lambda: "",
    )
    assert (found.verdict, found.cause, found.symptom) == (Verdict.WRONG, "", None)
