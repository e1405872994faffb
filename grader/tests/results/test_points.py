"""Points in print: as few decimals as needed, at most two, and columns that add up to what stands below."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grader.course.spec import Verdict
from grader.results import points, scoring
from grader.tests.helpers.result_fakes import a_timing, an_item, record

few = settings(max_examples=200, deadline=None, database=None)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (43.74999999999999, "43.75"),
        (100.0, "100"),
        (0.0, "0"),
        (-0.0, "0"),
        (56.2, "56.2"),
        (56.204, "56.2"),
        (2.0588235, "2.06"),
        (0.05, "0.05"),
        (0.125, "0.13"),
        (-1.5, "-1.5"),
    ],
)
def test_points_have_as_many_decimals_as_they_need_and_at_most_two(value, text):
    assert points.text(value) == text
    assert points.rounded(value) == float(text)


def test_points_fit_a_column_of_text():
    (shown,) = points.column([43.75])
    assert f"{shown:>8}|{shown}" == "   43.75|43.75"


def test_earned_and_open_points_of_lab_1_on_a_cpu_add_up_to_100():
    lab = record("cpu.json").labs[0]
    score = points.score_of(lab.items)
    assert [str(one) for one in (score.earned, score.graded, score.not_graded, score.most)] == [
        "47.42",
        "47.42",
        "52.58",
        "100",
    ]


def test_equal_shares_differ_by_a_hundredth_so_that_their_column_adds_up():
    shares = points.column([35 / 17] * 17)
    assert {str(one) for one in shares} == {"2.05", "2.06"}
    assert sum(shares) == 3500


@few
@given(st.lists(st.integers(0, 10**8), max_size=8))
def test_a_column_adds_up_to_its_rounded_sum_and_each_number_is_right_to_a_hundredth(micro):
    shown = points.column([value / 10**6 for value in micro])
    assert abs(sum(shown) - sum(micro) / 10**4) <= 0.5
    assert all(abs(one - value / 10**4) < 1 for one, value in zip(shown, micro, strict=True))


def items(draw):
    """Items of one kind, as they are in a run: equal shares, each earned, lost, open, or earned in part."""
    count, worth = draw(st.integers(1, 9)), draw(st.integers(1, 70))
    verdicts = st.sampled_from([Verdict.PASS, Verdict.WRONG, Verdict.NOT_GRADED, Verdict.SLOW])
    most, part = worth / count, draw(st.floats(0, 1))
    found = []
    for _ in range(count):
        verdict = draw(verdicts)
        earned = {Verdict.PASS: most, Verdict.SLOW: part * most}.get(verdict, 0.0)
        found.append(an_item(verdict, earned, most, timing=a_timing()))
    return found


@st.composite
def exercises(draw):
    return [items(draw) for _ in range(draw(st.integers(1, 5)))]


@few
@given(exercises())
def test_every_column_of_a_table_adds_up_and_no_number_contradicts_another(groups):
    whole = points.score_of([item for group in groups for item in group])
    parts = points.split(whole, groups)
    for column in ("earned", "lost", "not_graded", "graded", "most"):
        assert sum(getattr(part, column) for part in parts) == getattr(whole, column)
    for part, group in zip(parts, groups, strict=True):
        exact = scoring.total(group)
        assert 0 <= part.earned <= part.graded <= part.most
        assert abs(part.earned - 100 * exact.earned) < 1.001
        assert part.most == round(100 * exact.most), "a kind is worth whole points"
        # What was earned whole, or not at all, reads so.
        assert (part.earned == part.graded) or exact.earned < exact.graded
        assert part.earned == 0 or exact.earned > 0
        assert part.not_graded == 0 or exact.not_graded > 0


@few
@given(exercises())
def test_points_of_an_exercise_add_up_case_by_case(groups):
    whole = points.score_of([item for group in groups for item in group])
    for part, group in zip(points.split(whole, groups), groups, strict=True):
        cases = points.split(part, [[item] for item in group])
        assert sum(case.earned for case in cases) == part.earned
        assert sum(case.most for case in cases) == part.most


def test_less_than_a_millionth_of_a_point_is_none():
    assert an_item(Verdict.SLOW, points=3.18e-07, max_points=2.5).points == 0.0
    assert an_item(Verdict.SLOW, points=2e-06, max_points=2.5).points == 2e-06
