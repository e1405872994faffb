"""From measurements to points: clamped, capped at the baseline, and never for what was not graded."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grader.course.spec import Arm, Case, Speed, Verdict
from grader.results import scoring
from grader.tests.helpers.result_fakes import a_timing, an_item

SPEED = Speed(
    points=20,
    shapes=(Case({"n": 1}), Case({"n": 2})),
    baselines=(Arm("copy", print),),
    zero_at=40,
    passing_at=70,
    full_at=90,
    bytes_moved=lambda case: case.params["n"],
)
few = settings(max_examples=100, deadline=None, database=None)
PERCENTS = st.lists(st.floats(-50, 1000), min_size=1, max_size=4)


def item(verdict, points, max_points):
    return an_item(verdict, points, max_points, timing=a_timing())


@pytest.mark.parametrize(
    ("percent", "share"),
    [(0.0, 0.0), (39.9, 0.0), (40.0, 0.0), (65.0, 0.5), (90.0, 1.0), (95.0, 1.0), (400.0, 1.0)],
)
def test_share_rises_from_zero_at_to_full_at_and_is_clamped_outside(percent, share):
    assert scoring.speed_share([percent], SPEED) == pytest.approx(share)


def test_share_of_no_shape_is_0():
    assert scoring.speed_share([], SPEED) == 0.0


def test_share_is_that_of_the_geometric_mean():
    mean = math.sqrt(50.0 * 80.0)
    assert scoring.speed_share([50.0, 80.0], SPEED) == pytest.approx((mean - 40) / 50)


def test_shape_faster_than_the_baseline_counts_for_100():
    assert scoring.speed_share([1000.0, 50.0], SPEED) == scoring.speed_share([100.0, 50.0], SPEED)
    assert scoring.speed_share([1000.0, 50.0], SPEED) < 1.0


@pytest.mark.parametrize("percent", [0.0, -3.0])
def test_one_shape_at_zero_or_below_takes_all_speed_points(percent):
    assert scoring.speed_share([100.0, percent], SPEED) == 0.0


@few
@given(PERCENTS)
def test_share_lies_between_0_and_1(percents):
    assert 0.0 <= scoring.speed_share(percents, SPEED) <= 1.0


@few
@given(PERCENTS, st.floats(0, 100))
def test_share_never_falls_when_a_shape_gets_faster(percents, more):
    faster = [percents[0] + more, *percents[1:]]
    assert scoring.speed_share(faster, SPEED) >= scoring.speed_share(percents, SPEED) - 1e-12


def test_geometric_mean_weighs_ratios_alike():
    assert scoring.geometric_mean([25.0, 100.0]) == pytest.approx(50.0)
    assert scoring.geometric_mean([8.0]) == pytest.approx(8.0)


def test_geometric_mean_of_nothing_is_refused():
    with pytest.raises(ValueError, match="geometric mean of nothing"):
        scoring.geometric_mean([])


@pytest.mark.parametrize("verdict", [Verdict.NOT_GRADED, Verdict.GRADER_FAULT])
def test_ungraded_points_stay_open_and_are_never_earned(verdict):
    # Even where an item claims points, an answer that nobody judged earns none.
    results = [item(Verdict.PASS, 3.0, 3.0), item(verdict, 5.0, 5.0), item(Verdict.WRONG, 0.0, 2.0)]
    assert scoring.total(results) == (3.0, 5.0, 5.0)


@pytest.mark.parametrize("verdict", [verdict for verdict in Verdict if verdict not in scoring.UNGRADED])
def test_every_other_verdict_counts_as_graded(verdict):
    assert scoring.total([item(verdict, 1.0, 4.0)]) == (1.0, 4.0, 0.0)


def test_only_two_verdicts_leave_points_open():
    assert set(scoring.UNGRADED) == {Verdict.NOT_GRADED, Verdict.GRADER_FAULT}


def test_total_of_nothing_is_0_of_0():
    assert scoring.total([]) == (0.0, 0.0, 0.0)


@few
@given(st.lists(st.tuples(st.sampled_from(Verdict), st.floats(0, 1), st.floats(0, 100))))
def test_graded_and_open_points_add_to_the_maximum(answers):
    results = [item(verdict, share * most, most) for verdict, share, most in answers]
    earned, graded, open_points = scoring.total(results)
    assert graded + open_points == pytest.approx(sum(most for _, _, most in answers), abs=1e-4)
    assert 0.0 <= earned <= graded


def test_points_of_an_undecided_timing_stay_open_and_those_of_older_runs_stay_as_they_were():
    older = an_item(Verdict.INCONCLUSIVE, 12.0, 20.0, timing=a_timing())
    undecided = older.model_copy(update={"undecided": True})
    assert scoring.total([older]) == (12.0, 20.0, 0.0)
    assert scoring.total([undecided]) == (0.0, 0.0, 20.0)


def test_noise_that_left_no_percentage_costs_nobody_points():
    noisy = an_item(Verdict.INCONCLUSIVE, max_points=20.0)
    assert scoring.total([noisy]) == (0.0, 0.0, 20.0)
