"""A seat and its worker: what it tells beside its answers, and that a dead one is replaced."""

import os
import signal

import pytest
from conftest import python

from grader import catalog
from grader.judge import grade_case
from grader.lending import Arena
from grader.seat import Seat
from grader.session import Session
from grader.spec import Verdict


@pytest.fixture
def seat(warm):
    """A seat for lab 3's solution in the interpreter, and the lab."""
    entry = next(entry for entry in catalog.find() if entry.number == 3)
    arena = Arena.create("cpu", 1 << 28)
    file = entry.submission(catalog.ROOT / "solutions", entry.lab.exercises[0])
    seat = Seat(warm, file, arena, interpreted=True)
    yield seat, entry.lab
    seat.close()
    arena.close()


def first_case(lab):
    exercise = lab.exercises[0]
    return exercise, next(case for case in exercise.cases if not case.needs_gpu)


def test_a_worker_tells_which_config_an_autotuned_kernel_ran_with(seat):
    seat, lab = seat
    exercise, case = first_case(lab)
    assert grade_case(seat, lab, exercise, case).verdict is Verdict.PASS
    assert seat.wake(10) is None
    assert "BLOCK_M" in seat.picked(20.0)["matmul_kernel"]


def test_a_killed_worker_is_a_crash_and_the_next_call_gets_a_new_one(seat):
    seat, lab = seat
    exercise, case = first_case(lab)
    assert seat.start() is None
    os.kill(seat._worker.pid, signal.SIGKILL)
    outcome = grade_case(seat, lab, exercise, case)
    assert outcome.verdict is Verdict.CRASHED
    assert "SIGKILL" in outcome.where
    assert grade_case(seat, lab, exercise, case).verdict is Verdict.PASS


def test_a_run_whose_parent_gave_no_worker_has_no_assurance_to_tell():
    session = Session("cpu", 5)
    session.parent(interpreted=True)
    session.close()
    assert session.assurance is None


def test_the_judge_keeps_to_one_thread():
    """Threads that spin while the other side is at work made the corpora take three times as long."""
    done = python("-c", "import torch, grader.judge; print(torch.get_num_threads())")
    assert done.stdout.split() == ["1"], done.stderr
