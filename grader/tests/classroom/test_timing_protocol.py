"""Percentages that were timed in two ways are never compared, and a term ends as it began."""

import pytest
from rich.console import Console

from grader.classroom import records
from grader.classroom.grading import compare, verify
from grader.classroom.grading.run import Asked, AskedError, grade_class
from grader.classroom.records import RunRecord
from grader.results.models import TIMING_PROTOCOL, Results
from grader.tests.classroom.class_fakes import small_class
from grader.tests.helpers.result_fakes import record


def other(results: Results) -> Results:
    return results.model_copy(update={"timing_protocol": results.timing_protocol + 1})


def test_records_without_the_field_are_of_the_first_protocol():
    stored = record("h200.json").model_dump(mode="json")
    assert stored.pop("timing_protocol") > 1
    assert Results.model_validate(stored).timing_protocol == 1


def test_percentages_of_two_protocols_have_no_difference():
    one = record("h200.json")
    timed = [pair for pair in compare.pairs(one, one) if pair.first.timing]
    assert timed
    assert {pair.percent for pair in timed} == {0.0}
    assert {pair.percent for pair in compare.pairs(one, other(one))} == {None}


def test_verify_says_that_it_did_not_compare_the_times():
    one = record("h200.json")
    same, apart = verify.Found(), verify.Found()
    verify._gradings(same, one, one, verify.JUDGED, 3.0)
    verify._gradings(apart, one, other(one), verify.JUDGED, 3.0)
    assert (same.agrees, same.unseen) == (True, 0)
    assert (apart.agrees, apart.unseen) == (True, 1)
    first = one.timing_protocol
    assert f"timing protocols {first} and {first + 1}" in apart.lines[-1]


def test_a_class_is_not_continued_with_another_protocol(tmp_path):
    out = small_class(tmp_path / "out")
    run = records.read(out / "run.json", RunRecord)
    records.write(out / "run.json", run.model_copy(update={"timing_protocol": TIMING_PROTOCOL + 1}))
    (tmp_path / "in").mkdir()
    with pytest.raises(AskedError, match=r"end the term with grader 1\.0"):
        grade_class(Asked(tmp_path / "in", out, tier="cpu"), Console(quiet=True))
