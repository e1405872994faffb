"""Processes of timed shapes begin side by side, and none sets itself up beside a timed block."""

from types import SimpleNamespace

import pytest

from grader.course import catalog
from grader.course.items import CORRECTNESS, SPEED, graded_items
from grader.course.spec import Verdict
from grader.judge import run, timed_workers
from grader.judge.timed_workers import TimedWorkers
from grader.results.outcome import Outcome
from grader.system.gpu import Gpu
from grader.tests.helpers.course import ROOT

H200 = Gpu("H200", "580", "0" * 16, 90, 141 << 30, 4.8e12, 1e15, 1980)


class Process:
    """Stands in for a SubmissionWorker."""

    def __init__(self, item, events):
        self.item, self.events = item, events
        self.is_running = self.is_setting_up = False

    def note(self, event):
        self.events.append(f"{event} {self.item.exercise.name} {self.item.name}")

    def begin(self):
        self.is_running = self.is_setting_up = True
        self.note("begin")

    def set_up(self):
        self.is_setting_up = False
        self.note("set up")

    def kill(self):
        self.is_running = False

    def close(self):
        self.is_running = False
        self.note("close")


def shapes(*labs):
    items = [item for entry in catalog.find() if entry.number in labs for item in graded_items(entry)]
    return [item for item in items if item.kind == SPEED]


@pytest.fixture
def events():
    return []


@pytest.fixture
def workers(events):
    return lambda most: TimedWorkers(most, lambda item: Process(item, events))


def test_as_many_processes_begin_as_may_wait_and_each_shape_has_its_own(workers, events):
    timed, coming = workers(3), shapes(2)
    assert len(coming) == 4
    timed.begin(coming)
    assert events == [f"begin {item.exercise.name} {item.name}" for item in coming[:3]]
    timed.begin(coming)  # all three still wait
    assert len(events) == 3
    timed.of(coming[0]).close()
    timed.begin(coming[1:])
    ended, begun = coming[0], coming[3]
    assert events[3] == f"close {ended.exercise.name} {ended.name}"
    assert events[4:] == [f"begin {begun.exercise.name} {begun.name}"]


def test_all_that_have_begun_are_set_up_before_a_shape_is_timed(workers, events):
    timed, coming = workers(2), shapes(3)
    timed.begin(coming)
    timed.set_up()
    timed.set_up()  # nothing is left to wait for
    assert [event.split()[0] for event in events] == ["begin", "begin", "set", "set"]
    timed.close()
    assert not any(timed.of(item).is_running for item in coming)


def test_memory_of_gpu_and_host_and_cores_bound_how_many_wait(monkeypatch):
    def most(gpu_gib, host_gib, cores):
        memory = SimpleNamespace(available=host_gib << 30)
        monkeypatch.setattr(timed_workers.psutil, "virtual_memory", lambda: memory)
        monkeypatch.setattr(timed_workers.os, "sched_getaffinity", lambda _: range(cores))
        return timed_workers.most_waiting(gpu_gib << 30)

    assert most(48, 128, 16) == 15
    assert most(48, 128, 64) == 20
    assert most(48, 8, 64) == 4
    assert most(4, 128, 16) == most(0, 128, 16) == most(48, 128, 2) == 1


def test_processes_begin_once_the_cases_of_their_function_are_right(warm, monkeypatch, events):
    monkeypatch.setattr(timed_workers, "most_waiting", lambda _: 15)
    one = run.Run(ROOT / "solutions", "gpu", 7, H200, session=warm)
    items = [item for entry in catalog.find() if entry.number == 2 for item in graded_items(entry)]
    one._timed = [item for item in items if item.kind == SPEED]
    one._timed_by = TimedWorkers(15, lambda item: Process(item, events))

    def graded(_worker, _lab, exercise, *_):
        return Outcome(Verdict.WRONG if exercise.name == "softmax_backward" else Verdict.PASS)

    monkeypatch.setattr("grader.judge.correctness.grade_case", graded)
    worker = SimpleNamespace(printed="", close=lambda: None)
    monkeypatch.setattr(one, "_worker_for_cases", lambda _: worker)
    monkeypatch.setattr(one, "_begin_following", lambda _: None)
    first = {}
    for item in items:
        if item.kind == CORRECTNESS:
            first.setdefault(item.exercise.name, item)
    for item in first.values():
        one.answer(item)
    # softmax_forward was right and softmax_backward was not.
    assert events == [f"begin softmax_forward {item.name}" for item in one._timed[:2]]
    one.close()
