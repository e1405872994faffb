"""Cases that a second worker grades: each once, and what is raised is raised where the case is asked for."""

import threading
from concurrent.futures import Future
from types import SimpleNamespace

import pytest

from grader.course.spec import Verdict
from grader.judge.beside import Beside
from grader.results.outcome import Outcome


def item(name):
    return SimpleNamespace(entry=SimpleNamespace(folder="lab"), id=name)


@pytest.fixture
def beside():
    one = Beside()
    yield one
    one.close()


def nothing():
    """End no worker: there is none."""


def test_each_case_is_graded_once_from_the_last_one_on(beside):
    items, graded = [item(str(number)) for number in range(6)], []
    beside.begin(items, lambda one: graded.append(one.id) or Outcome(Verdict.PASS, where=one.id), nothing)
    found = [beside.take(one) for one in items]
    told = [one.result(10).where for one in found if one]
    assert told == sorted(graded)
    assert graded == [str(number) for number in range(5, 5 - len(graded), -1)]


def test_a_case_that_is_taken_before_it_began_is_the_callers(beside):
    first, last, began, may_end = item("first"), item("last"), threading.Event(), threading.Event()

    def grade(one):
        began.set()
        may_end.wait(10)
        return Outcome(Verdict.PASS, where=one.id)

    beside.begin([first, last], grade, nothing)
    assert began.wait(10)
    assert beside.take(first) is None
    begun = beside.take(last)
    may_end.set()
    assert begun.result(10).where == "last"


def test_what_a_case_raises_is_raised_where_it_is_asked_for(beside):
    began, one = threading.Event(), item("one")

    def fails(_):
        began.set()
        raise ValueError("of the case")

    beside.begin([one], fails, nothing)
    assert began.wait(10)
    with pytest.raises(ValueError, match="of the case"):
        beside.take(one).result(10)


def test_nothing_is_begun_before_what_comes_first_is_done(beside):
    first, graded = Future(), threading.Event()
    beside.begin([item("one")], lambda _: graded.set() or Outcome(Verdict.PASS), nothing, [first])
    assert not graded.wait(0.2)
    first.set_result(None)
    assert graded.wait(10)


def test_closing_ends_the_worker_and_begins_nothing_more():
    beside, killed, began = Beside(), threading.Event(), threading.Event()
    graded = []

    def grade(one):
        graded.append(one.id)
        began.set()
        killed.wait(10)
        return Outcome(Verdict.PASS)

    beside.begin([item("a"), item("b")], grade, killed.set)
    assert began.wait(10)
    beside.close()
    assert graded == ["b"]
