"""A worker and its worker: what it tells beside its answers, and that a dead one is replaced."""

import os
import signal
import time
import types

import pytest

from grader.course import catalog
from grader.course.spec import Reason, Verdict
from grader.course.submission import Submission
from grader.judge.correctness import grade_case
from grader.judge.trial import Trial
from grader.tests.helpers.commands import python
from grader.tests.helpers.course import ROOT, solution, swap
from grader.worker.error_report import ErrorReport
from grader.worker.session import Session
from grader.worker.shared_memory import Arena
from grader.worker.submission_worker import SubmissionWorker
from grader.worker.worker import own_kernels


@pytest.fixture
def worker(warm):
    """A worker for lab 3's solution in the interpreter, and the lab."""
    entry = next(entry for entry in catalog.find() if entry.number == 3)
    arena = Arena.create("cpu", 1 << 28)
    file = entry.submission(catalog.ROOT / "solutions", entry.lab.exercises[0])
    worker = SubmissionWorker(warm, Submission.read(file), arena, interpreted=True)
    yield worker, entry.lab
    worker.close()
    arena.close()


def first_case(lab):
    exercise = lab.exercises[0]
    return exercise, next(case for case in exercise.cases if not case.needs_gpu)


def test_a_worker_tells_which_config_an_autotuned_kernel_ran_with(worker):
    worker, lab = worker
    exercise, case = first_case(lab)
    assert grade_case(worker, lab, exercise, case).verdict is Verdict.PASS
    assert "BLOCK_M" in worker.picked(20.0)["matmul_kernel"]


def test_a_kernel_picks_the_same_config_for_the_same_sizes_in_another_process(warm, tmp_path):
    entry = next(entry for entry in catalog.find() if entry.number == 1)
    (exercise,) = entry.lab.exercises
    configs = "[triton.Config({'BLOCK': 16 << at}) for at in range(10)]"
    text = swap(solution(1), "@triton.jit", f"@triton.autotune({configs}, key=['n'])\n@triton.jit")
    text = swap(
        text,
        "n, BLOCK=BLOCK)",
        "n)",
        "(triton.cdiv(n, BLOCK),)",
        "lambda meta: (triton.cdiv(n, meta['BLOCK']),)",
    )
    (tmp_path / "elementwise_add.py").write_text(text)
    arena = Arena.create("cpu", 1 << 24)
    worker = SubmissionWorker(warm, Submission.read(tmp_path / "elementwise_add.py"), arena, interpreted=True)
    cases = {one.name: one for one in exercise.cases}

    def picked(*names):
        for name in names[:-1]:
            outcome = grade_case(worker, entry.lab, exercise, cases[name])
            assert outcome.verdict is Verdict.PASS, outcome
        assert worker.start() is None
        assert Trial(exercise, cases[names[-1]], warm.seed).right(worker) == 1.0
        found = worker.picked(20.0)
        worker.close()
        return found

    for name in ("n=7,fp32", "n=127,fp32", "n=1009,fp32"):
        others = [one for one in ("n=1,fp32", "n=7,fp32", "n=127,fp32") if one != name]
        assert picked(name) == picked(*others, name)
    arena.close()


def test_a_killed_worker_is_a_crash_and_the_next_call_gets_a_new_one(worker):
    worker, lab = worker
    exercise, case = first_case(lab)
    assert worker.start() is None
    os.kill(worker._worker.pid, signal.SIGKILL)
    outcome = grade_case(worker, lab, exercise, case)
    assert outcome.verdict is Verdict.CRASHED
    assert "SIGKILL" in outcome.where
    assert grade_case(worker, lab, exercise, case).verdict is Verdict.PASS


def test_no_line_of_the_file_runs_in_a_process_that_is_only_set_up(warm, tmp_path):
    (tmp_path / "elementwise_add.py").write_text("print('this line has run')\n")
    arena = Arena.create("cpu", 1 << 20)
    worker = SubmissionWorker(warm, Submission.read(tmp_path / "elementwise_add.py"), arena, interpreted=True)
    assert worker.begin() is None
    assert worker.is_setting_up
    process = worker._worker
    assert worker.set_up() is None
    assert not worker.is_setting_up
    assert worker.printed == ""
    assert worker.start() is None
    assert worker._worker is process
    assert worker.printed == "this line has run\n"
    assert worker.start() is None  # which imports nothing again
    assert worker.printed == "this line has run\n"
    worker.close()
    arena.close()


def test_a_file_that_cannot_be_imported_is_tried_once(warm, tmp_path):
    (tmp_path / "elementwise_add.py").write_text("import nothing_of_this_name\n")
    arena = Arena.create("cpu", 1 << 20)
    worker = SubmissionWorker(warm, Submission.read(tmp_path / "elementwise_add.py"), arena, interpreted=True)
    failed = worker.start()
    assert failed is not None
    assert failed.verdict is not Verdict.GRADER_FAULT
    process = worker._worker
    assert worker.begin() is worker.set_up() is None
    assert worker.start() is failed
    assert worker._worker is process
    worker.close()
    arena.close()


def test_a_python_file_cannot_name_the_kernels_of_others_as_its_own():
    module = types.ModuleType("submission")
    module.kernels = ["sgemm_128x64"]  # a global of the student's, which the screen permits
    assert own_kernels(module) == []


def test_a_run_whose_parent_gave_no_worker_has_no_assurance_to_tell():
    session = Session("cpu", 5)
    session.parent(interpreted=True)
    session.close()
    assert session.assurance is None


def test_the_judge_keeps_to_one_thread():
    """Threads that spin while the other side is at work made the corpora take three times as long."""
    done = python("-c", "import torch, grader.judge.correctness; print(torch.get_num_threads())")
    assert done.stdout.split() == ["1"], done.stderr


DRIVER = """
import os, sys
from triton.runtime import driver
from grader.worker.triton_settings import load_driver

class Driver:
    def __init__(self):
        print("loaded from", os.environ["TRITON_CACHE_DIR"])

type(driver).default = property(lambda _: Driver())
load_driver("run")
print("then", os.environ["TRITON_CACHE_DIR"])
"""


def test_a_worker_does_not_load_the_driver_from_a_folder_to_which_the_file_could_write():
    """Before it is confined: what an earlier worker of the file had left there would run with all rights."""
    done = python("-c", DRIVER, TRITON_CACHE_DIR="file")
    assert done.stdout.splitlines() == ["loaded from run", "then file"], done.stderr


LAUNCHED = """
import triton, triton.language as tl
from triton.runtime.interpreter import InterpretedFunction
from triton.runtime.jit import JITFunction
from grader.worker.triton_settings import permit_few_options

JITFunction.run = InterpretedFunction.run = lambda kernel, *_, **options: print(sorted(options))
permit_few_options()

@triton.jit
def kernel(x, warp_size: tl.constexpr):
    pass

kernel[(1,)](0, warp_size=32, num_warps=8)
for name in ("ptx_options", "ir_override", "extern_libs", "ptx_version", "debug"):
    try:
        kernel[(1,)](0, warp_size=32, **{name: "--options-file /etc/hostname"})
    except TypeError as error:
        print(error)
"""


@pytest.mark.parametrize("interpret", ["0", "1"], ids=["compiled", "interpreted"])
def test_options_that_name_files_or_go_to_the_assembler_are_refused(tmp_path, interpret):
    (tmp_path / "launched.py").write_text(LAUNCHED)
    done = python(tmp_path / "launched.py", PYTHONPATH=str(ROOT), TRITON_INTERPRET=interpret)
    names = ("ptx_options", "ir_override", "extern_libs", "ptx_version", "debug")
    refused = [f"`{name}=` is not permitted in a launch or a config" for name in names]
    assert done.stdout.splitlines() == ["['grid', 'num_warps', 'warmup', 'warp_size']", *refused], done.stderr


def test_an_error_tells_the_shapes_of_what_its_line_names(warm, tmp_path):
    entry = next(entry for entry in catalog.find() if entry.number == 1)
    (exercise,) = entry.lab.exercises
    text = swap(
        solution(1),
        "y = tl.load(y_ptr + offs, mask=mask)",
        "y = tl.zeros((2, 4), tl.float32)",
        "x + y",
        "y + x",
    )
    (tmp_path / "elementwise_add.py").write_text(text)
    arena = Arena.create("cpu", 1 << 24)
    worker = SubmissionWorker(warm, Submission.read(tmp_path / "elementwise_add.py"), arena, interpreted=True)
    outcome = grade_case(worker, entry.lab, exercise, exercise.cases[0])
    assert outcome.shapes["y"] == (2, 4)
    assert len(outcome.shapes["x"]) == 1
    worker.close()
    arena.close()


def test_shapes_that_are_claimed_are_names_with_whole_numbers():
    claimed = {"x": [4, 2], "no name": [1], "y": "12", "z": [1.5], "w": [1] * 99, "v": []}
    assert ErrorReport.claimed({"shapes": claimed}).shapes == {"x": (4, 2), "v": ()}
    assert ErrorReport.claimed({"shapes": 7}).shapes == {}


def test_numbers_that_are_claimed_are_names_with_whole_numbers():
    claimed = {"BLOCK": 192, "no name": 1, "x": "12", "y": 1.5, "yes": True, "large": 1 << 70}
    assert ErrorReport.claimed({"numbers": claimed}).numbers == {"BLOCK": 192}
    assert ErrorReport.claimed({"numbers": 7}).numbers == {}


def test_a_worker_that_is_continued_while_it_is_held_is_found(worker):
    worker, _ = worker
    assert worker.start() is None
    client = worker._worker
    client.hold(still=True)
    client.hold(still=True)  # as before each block of the other side
    assert not client.has_run
    os.kill(client.pid, signal.SIGCONT)
    deadline = time.monotonic() + 5.0
    while not client.has_run and time.monotonic() < deadline:
        time.sleep(0.001)
    client.hold(still=True)  # which stops it, and does not forget
    assert client.has_run
    client.hold(still=False)
    assert not client.has_run


def test_a_worker_that_ran_while_it_was_held_gets_no_time(worker):
    worker, _ = worker
    assert worker.start() is None
    client = worker._worker
    client.hold(still=True)
    os.kill(client.pid, signal.SIGCONT)
    time.sleep(0.05)
    found = worker.ran_on()
    assert found is not None
    assert found.reason is Reason.PROTOCOL
    assert worker.ran_on() is None  # its process has ended
