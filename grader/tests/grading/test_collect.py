"""What a run found becomes results whose sums are exact, in the file as in memory."""

import dataclasses
import json
import re
from fractions import Fraction
from types import SimpleNamespace

import pytest

from grader.course import catalog
from grader.course.items import CORRECTNESS, SPEED, graded_items
from grader.course.spec import Verdict
from grader.course.submission import Submission
from grader.grading import collect
from grader.results import scoring
from grader.results.outcome import Outcome
from grader.tests.helpers.result_fakes import a_timing

ENTRY = catalog.find()[0]
(ADD,) = ENTRY.lab.exercises
RIGHT, WRONG = Outcome(Verdict.PASS, share=1.0), Outcome(Verdict.WRONG)


def answered(outcome_of, entry=ENTRY):
    return [(item, outcome_of(number, item), 0.0) for number, item in enumerate(graded_items(entry))]


def collected(answers, path):
    run = SimpleNamespace(
        tier="gpu", source="labs", seed=1, arch=90, assurance="L1", assurance_level=1, no_gate="", gpu=None,
        submission=lambda item: Submission.read(path / item.exercise.file),
        imports_sha256=lambda _: "",
    )  # fmt: skip
    return collect.collect(answers, run, command="", seconds=0.0, gpu_missing="")


@pytest.mark.parametrize("right", range(len(ADD.cases) + 1))
def test_points_of_cases_are_their_exact_share_without_the_noise_of_floating_point(tmp_path, right):
    answers = answered(lambda number, _: RIGHT if number < right else WRONG)
    results = collected([one for one in answers if one[0].kind == CORRECTNESS], tmp_path)
    share = Fraction(int(ADD.points) * right, len(ADD.cases))
    assert results.points == results.labs[0].points == round(float(share), 6)
    written = re.findall(r'points": ?(\d+\.\d+)', results.model_dump_json())
    assert len(written) == 2 * len(ADD.cases) + 8
    assert max(len(one.partition(".")[2]) for one in written) <= 9
    items = json.loads(results.model_dump_json())["labs"][0]["exercises"][0]["items"]
    assert round(sum(item["points"] for item in items), 6) == results.points
    assert round(sum(item["max_points"] for item in items), 6) == results.max_points == ADD.points


def test_15_of_24_cases_are_43_75_points(tmp_path):
    lab = dataclasses.replace(ENTRY.lab, exercises=(dataclasses.replace(ADD, cases=ADD.cases[:24]),))
    entry = dataclasses.replace(ENTRY, lab=lab)
    answers = answered(lambda number, _: RIGHT if number < 15 else WRONG, entry)[:24]
    assert '"points":43.75,' in collected(answers, tmp_path).model_dump_json()


def of_cases(outcome_of):
    answers = answered(lambda _, item: outcome_of(item.case) if item.kind == CORRECTNESS else WRONG)
    return [item for item in collect.scored(ADD, answers) if item.kind == CORRECTNESS]


def test_a_case_without_elements_earns_nothing_where_no_case_with_elements_is_right():
    items = of_cases(lambda case: WRONG if case.params["n"] else RIGHT)
    empty = [item for item in items if item.verdict is Verdict.PASS]
    assert {item.name for item in empty} == {"n=0,fp32", "n=0,fp16", "n=0,bf16", "n=0,no out,fp32"}
    assert sum(item.points for item in items) == 0.0
    assert all("no elements" in item.where and item.max_points for item in empty)


@pytest.mark.parametrize("others", [Verdict.NOT_GRADED, Verdict.GRADER_FAULT])
def test_an_empty_case_earns_nothing_either_where_no_other_was_graded(others):
    items = of_cases(lambda case: Outcome(others) if case.params["n"] else RIGHT)
    assert sum(item.points for item in items) == 0.0


def test_a_case_without_elements_earns_its_points_beside_one_that_is_right():
    items = of_cases(lambda case: RIGHT if case.params["n"] in (0, 7) else WRONG)
    right = [item for item in items if item.verdict is Verdict.PASS]
    assert len(right) == 7
    assert all(item.points == item.max_points and not item.where for item in right)


def test_a_hidden_case_without_elements_does_not_say_so():
    hidden = [
        (dataclasses.replace(item, case=dataclasses.replace(item.case, label="hidden 1")), RIGHT, 0.0)
        for item, _, _ in answered(lambda *_: RIGHT)
        if item.kind == CORRECTNESS and item.case.params == {"n": 0}
    ]
    assert {(item.points, item.where) for item in collect.scored(ADD, hidden)} == {(0.0, "")}


def test_speed_points_are_the_share_of_all_shapes_and_none_where_one_was_wrong():
    timed = Outcome(Verdict.SLOW, timing=a_timing(percent_of_baseline=ADD.speed.full_at))
    share = scoring.speed_share([ADD.speed.full_at], ADD.speed)
    for outcome, earned in ((timed, share), (WRONG, 0.0), (Outcome(Verdict.NOT_GRADED), 0.0)):
        answers = answered(lambda _, item, own=outcome: own if item.kind == SPEED else RIGHT)
        items = [item for item in collect.scored(ADD, answers) if item.kind == SPEED]
        assert sum(item.points for item in items) == pytest.approx(earned * ADD.speed.points)


def timed_shapes(*outcomes):
    """The timed items of lab 1, the shapes with these outcomes in turn."""
    shape = next(item for item in graded_items(ENTRY) if item.kind == SPEED)
    return collect.scored(ADD, [(shape, outcome, 0.0) for outcome in outcomes])


def test_an_undecided_shape_has_no_points_and_no_part_in_those_of_the_others():
    middle = (ADD.speed.zero_at + ADD.speed.full_at) / 2
    timed = Outcome(Verdict.SLOW, timing=a_timing(percent_of_baseline=middle))
    noisy = Outcome(Verdict.INCONCLUSIVE, undecided=True, timing=a_timing(percent_of_baseline=100.0))
    (alone,) = timed_shapes(timed)
    beside, undecided = timed_shapes(timed, noisy)
    assert beside.points == alone.points > 0
    assert (undecided.points, undecided.undecided) == (0.0, True)
    assert undecided.timing.percent_of_baseline == 100.0
    assert scoring.total([beside, undecided]).not_graded == undecided.max_points
    assert [one.points for one in timed_shapes(WRONG, noisy)] == [0.0, 0.0]


def test_an_inconclusive_shape_of_an_older_run_keeps_its_points():
    noisy = Outcome(Verdict.INCONCLUSIVE, timing=a_timing(percent_of_baseline=ADD.speed.full_at))
    (stored,) = timed_shapes(noisy)
    assert stored.points == stored.max_points
    assert not scoring.is_open(stored)


def test_noise_without_a_timing_leaves_the_points_open(tmp_path):
    noise = Outcome(Verdict.INCONCLUSIVE)
    results = collected(answered(lambda _, item: noise if item.kind == SPEED else RIGHT), tmp_path)
    assert results.not_graded_points == ADD.speed.points
    assert results.graded_points + results.not_graded_points == results.max_points == ENTRY.lab.points
