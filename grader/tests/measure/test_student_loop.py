"""What `student-loop` reads from a terminal, and what it grades."""

import os

import pytest

from grader.measure import student_loop
from grader.measure.student_loop import CAUSE, END, FACT, MISTAKES, NotShownError, Terminal
from grader.tests.helpers.course import solution, swap


def terminal(script):
    return Terminal(["sh", "-c", script], dict(os.environ))


def test_what_is_shown_is_timed_when_it_is_shown():
    shown = terminal(
        "sleep 0.3; printf '\\033[1mfirst\\033[0m wrong'; sleep 0.3; echo; echo likely cause; sleep 0.3"
    )
    fact, cause, end = (shown.wait_for(one) for one in (FACT, CAUSE, END))
    shown.close()
    assert 0.3 <= fact <= cause - 0.25 <= end - 0.5, (fact, cause, end)


def test_a_command_that_ends_without_it_is_an_error():
    shown = terminal("echo something else")
    with pytest.raises(NotShownError, match="something else"):
        shown.wait_for(CAUSE)
    shown.close()


def test_what_never_comes_is_an_error(monkeypatch):
    monkeypatch.setattr(student_loop, "LIMIT_S", 0.5)
    shown = terminal("sleep 2")
    with pytest.raises(NotShownError):
        shown.wait_for(FACT)
    shown.close()


def test_what_was_shown_before_a_rest_does_not_count():
    """A save was timed by the screen before it, which was still to be read."""
    shown = terminal("echo first wrong; sleep 0.5; echo first wrong; sleep 0.2")
    shown.rest(0.3)
    assert shown.wait_for(FACT) >= 0.1
    shown.close()


def test_the_mistakes_that_are_timed_change_a_solution():
    assert MISTAKES
    for lab, (old, new) in MISTAKES.items():
        assert swap(solution(lab), old, new) != solution(lab)
