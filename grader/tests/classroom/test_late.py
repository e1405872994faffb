"""The late policy: what is in time, what a day costs on the clock of the course, and where tokens go."""

import datetime
import itertools
from fractions import Fraction

import pytest

from grader.classroom.gradebook.late import LateError, LatePolicy, read, unknown_names
from grader.classroom.gradebook.tokens import spend

DUE = datetime.datetime(2026, 10, 5, 23, 59)
SECOND = datetime.timedelta(seconds=1)


def policy(**facts) -> LatePolicy:
    facts = {
        "timezone": "Europe/Vienna",
        "grace_minutes": 15,
        "percent_per_day": 10,
        "most_percent": 50,
        **facts,
    }
    return LatePolicy.model_validate({"due": {"1": DUE}, **facts})


def local(moment: datetime.datetime, hours: int) -> datetime.datetime:
    """A time on a clock that many hours ahead of UTC."""
    return moment.replace(tzinfo=datetime.timezone(datetime.timedelta(hours=hours)))


@pytest.mark.parametrize(
    ("after", "days"),
    [
        (datetime.timedelta(), 0),
        (datetime.timedelta(minutes=15), 0),
        (datetime.timedelta(minutes=15) + SECOND, 1),
        (datetime.timedelta(days=1, minutes=15), 1),
        (datetime.timedelta(days=1, minutes=15) + SECOND, 2),
        (-datetime.timedelta(days=40), 0),
    ],
)
def test_a_day_is_late_one_second_after_its_grace_and_not_before(after, days):
    assert policy().days_late("ada", "1", local(DUE + after, 2)) == days


def test_without_grace_the_due_second_itself_is_in_time():
    strict = policy(grace_minutes=0)
    assert strict.days_late("ada", "1", local(DUE, 2)) == 0
    assert strict.days_late("ada", "1", local(DUE + SECOND, 2)) == 1


def test_a_day_late_ends_at_the_same_hour_although_the_clock_changed():
    # In Vienna the clock goes back an hour on 25 October 2026: this day has 25 hours.
    autumn = policy(grace_minutes=0, due={"1": datetime.datetime(2026, 10, 24, 12)})
    end = local(datetime.datetime(2026, 10, 25, 12), 1)
    assert end - local(datetime.datetime(2026, 10, 24, 12), 2) == datetime.timedelta(hours=25)
    assert [autumn.days_late("ada", "1", moment) for moment in (end, end + SECOND)] == [1, 2]


def test_an_hour_that_comes_twice_or_never_is_read_in_the_students_favour():
    twice = policy(grace_minutes=0, due={"1": datetime.datetime(2026, 10, 25, 2, 30)})
    assert twice.days_late("ada", "1", local(datetime.datetime(2026, 10, 25, 2, 30), 1)) == 0
    never = policy(grace_minutes=0, due={"1": datetime.datetime(2026, 3, 29, 2, 30)})
    assert never.days_late("ada", "1", local(datetime.datetime(2026, 3, 29, 3, 30), 2)) == 0
    assert never.days_late("ada", "1", local(datetime.datetime(2026, 3, 29, 3, 30), 2) + SECOND) == 1


def test_an_extension_is_days_or_a_date_and_of_its_student_alone():
    other = datetime.datetime(2026, 10, 20, 8)
    longer = policy(extensions={"ada": {"1": 3}, "bob": {"1": other}})
    handed_in = local(DUE + datetime.timedelta(days=3), 2)
    assert [longer.days_late(name, "1", handed_in) for name in ("ada", "bob", "cyd")] == [0, 0, 3]
    assert longer.days_late("bob", "1", local(other, 2) + datetime.timedelta(hours=1)) == 1


def test_a_lab_without_a_date_is_never_late():
    assert policy().days_late("ada", "2", local(DUE + datetime.timedelta(days=99), 2)) == 0


def test_the_price_has_a_cap_and_an_end():
    ends = policy(most_days=6)
    assert [ends.lost(days) for days in (0, 1, 5, 6, 7)] == [
        0,
        Fraction(1, 10),
        Fraction(1, 2),
        Fraction(1, 2),
        1,
    ]


def test_tokens_go_where_they_keep_most_points():
    assert [one.tokens for one in spend(policy(), [(10.0, 1), (90.0, 1)], 1)] == [0, 1]
    # One day less of eight saves nothing below the cap of five days: the token helps the other lab.
    assert [one.tokens for one in spend(policy(), [(100.0, 8), (20.0, 1)], 1)] == [0, 1]


def test_of_equal_ways_the_one_that_spends_least_and_then_what_is_due_first_is_taken():
    assert [one.tokens for one in spend(policy(), [(0.0, 3), (50.0, 0)], 3)] == [0, 0]
    assert [one.tokens for one in spend(policy(), [(50.0, 1), (50.0, 1)], 1)] == [1, 0]


def test_no_other_way_to_spend_tokens_keeps_more():
    rules, labs = policy(most_days=4), [(70.5, 3), (12.25, 6), (99.0, 1), (40.0, 5)]
    for tokens in range(8):
        best = spend(rules, labs, tokens)
        kept = sum(Fraction(points) * (1 - late.lost) for (points, _), late in zip(labs, best, strict=True))
        ways = itertools.product(*(range(days + 1) for _, days in labs))
        others = [
            sum(Fraction(p) * (1 - rules.lost(days - t)) for (p, days), t in zip(labs, way, strict=True))
            for way in ways
            if sum(way) <= tokens
        ]
        assert sum(late.tokens for late in best) <= tokens
        assert kept == max(others)


def test_tokens_of_earlier_labs_are_gone():
    rules = policy(tokens=2, spent={"ada": 1, "bob": 5})
    assert [rules.tokens_of(name) for name in ("ada", "bob", "cyd")] == [1, 0, 2]


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("timezone = 'Europe/Vienne'", "timezone"),
        ("percent_per_day = 101", "percent_per_day"),
        ("tokens = -1", "tokens"),
        ("grace = 3", "grace"),
        ("[due]\n1 = 5", "due"),
        ("[due]\n1 = 2026-13-01", "late.toml"),
    ],
)
def test_a_wrong_policy_is_an_error_that_names_file_and_field(tmp_path, text, word):
    file = tmp_path / "late.toml"
    file.write_text(text)
    with pytest.raises(LateError, match=r"late\.toml") as raised:
        read(file)
    assert word in str(raised.value)


def test_names_of_no_student_and_of_no_lab_are_told():
    rules = policy(extensions={"adda": {"9": 1}}, spent={"bob": 1})
    assert unknown_names(rules, {"ada", "bob"}, {"1"}) == [
        "no student adda in this run",
        "no lab 9 in this run",
    ]
