"""What is expected of a case, computed ahead in a thread."""

from types import SimpleNamespace

import pytest
import torch

from grader.course import catalog
from grader.course.items import CORRECTNESS, graded_items
from grader.course.spec import Verdict
from grader.judge import comparison, run
from grader.judge.correctness import runs
from grader.judge.inputs import same_bits, tensors
from grader.judge.wanted import Wanted, WantedAhead
from grader.results.outcome import Outcome
from grader.system.gpu import Gpu
from grader.tests.helpers.course import ROOT
from grader.worker.session import Session

LAB = next(entry for entry in catalog.find() if entry.number == 2).lab
EXERCISE = LAB.exercises[0]
CASE, OTHER = EXERCISE.cases[1:3]


@pytest.fixture
def session():
    one = Session("cpu", 7, confined=False)
    yield one
    one.close()


@pytest.fixture
def ahead(session):
    one = WantedAhead(session)
    yield one
    one.close()


def test_what_was_computed_ahead_is_what_the_case_computes_itself(session, ahead):
    calls = runs(EXERCISE, "cpu")
    ahead.begin(EXERCISE, CASE, calls)
    begun = ahead.taken(CASE).result()
    assert begun.is_for(CASE, calls)
    itself = Wanted(session, EXERCISE, CASE, calls, attempt=0)
    itself.compute()
    assert begun.expected
    for one, other in zip(begun.inputs, itself.inputs, strict=True):
        assert all(same_bits(value, tensors(other)[name]) for name, value in tensors(one).items())
    for one, other in zip(begun.expected, itself.expected, strict=True):
        assert all(map(torch.equal, one.reference, other.reference))
        assert one.factors == other.factors


def test_it_is_for_one_case_and_its_calls_and_taken_once(ahead):
    ahead.begin(EXERCISE, CASE, (0, 1))
    begun = ahead.taken(CASE)
    assert ahead.taken(CASE) is None
    assert not begun.result().is_for(CASE, (0,))
    assert not begun.result().is_for(OTHER, (0, 1))
    ahead.begin(EXERCISE, CASE, (0, 1))
    assert ahead.taken(OTHER) is None


def test_an_error_is_that_of_the_case(ahead, monkeypatch):
    monkeypatch.setattr(comparison, "expect", lambda *_: 1 / 0)
    ahead.begin(EXERCISE, CASE, (0, 1))
    with pytest.raises(ZeroDivisionError):
        ahead.taken(CASE).result()


def test_no_timed_block_runs_beside_the_thread(ahead, monkeypatch):
    done = []
    expect = comparison.expect
    monkeypatch.setattr(comparison, "expect", lambda *asked: done.append(1) or expect(*asked))
    ahead.begin(EXERCISE, CASE, (0, 1))
    ahead.wait()
    assert len(done) == 2


def test_a_case_on_a_gpu_gets_what_was_begun_while_the_case_before_was_graded(warm, monkeypatch):
    gpu = Gpu("H200", "580", "0" * 16, 90, 141 << 30, 4.8e12, 1e15, 1980)
    one = run.Run(ROOT / "solutions", "gpu", 7, gpu, session=warm)
    entry = next(entry for entry in catalog.find() if entry.number == 2)
    items = [item for item in graded_items(entry) if item.kind == CORRECTNESS][:3]
    one._next = {items[0]: items[1], items[1]: items[2]}
    got = []

    def graded(_worker, _lab, _exercise, case, _count, begun):
        got.append((case, begun.result().case if begun else None))
        return Outcome(Verdict.PASS)

    monkeypatch.setattr("grader.judge.correctness.grade_case", graded)
    worker = SimpleNamespace(printed="", close=lambda: None, is_gated=True)
    monkeypatch.setattr(one, "_worker_for_cases", lambda _: worker)
    monkeypatch.setattr(one, "_begin_following", lambda _: None)
    for item in items:
        one.answer(item)
    one.close()
    assert got == [(items[0].case, None), (items[1].case, items[1].case), (items[2].case, items[2].case)]
