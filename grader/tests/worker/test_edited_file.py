"""Edits of a file: what is read anew, and that nothing of the text before stays."""

from pathlib import Path

import pytest
import torch

from grader.course import catalog
from grader.course.submission import Submission
from grader.judge.trial import Trial
from grader.tests.helpers.course import SEED, swap
from grader.worker.messages import OneProgram
from grader.worker.shared_memory import Arena
from grader.worker.submission_worker import SubmissionWorker

LAB_1 = Path("solutions/lab1_elementwise_add/elementwise_add.py").read_text()
LIMIT_S = 20.0
COUNTED = LAB_1 + "\nimport os\nos.environ['IMPORTED'] = str(int(os.environ.get('IMPORTED', 0)) + 1)\n"
SHOWN = (
    "\n\ndef elementwise_add(x, y, out=None):\n    out.fill_(float(os.environ['IMPORTED']))\n    return out\n"
)
MINUS = ("x + y, mask", "x - y, mask")
TWICE = (
    "    tl.store(out_ptr + offs, x + y, mask=mask)",
    "    z = x + y\n    tl.store(out_ptr + offs, z + z, mask=mask)",
)


@pytest.fixture
def lab_1(warm):
    """A worker for lab 1's solution in the interpreter, and a trial of its case with 1,009 elements."""
    entry = next(entry for entry in catalog.find() if entry.number == 1)
    (exercise,) = entry.lab.exercises
    arena = Arena.create("cpu", 1 << 24)
    file = Submission.read(entry.submission(catalog.ROOT / "solutions", exercise))
    worker = SubmissionWorker(warm, file, arena, interpreted=True)
    case = next(one for one in exercise.cases if one.name == "n=1009,fp32")
    assert worker.start() is None
    yield worker, Trial(exercise, case, SEED)
    worker.close()
    arena.close()


def result(worker, trial, text, base=None, **options):
    assert worker.edit(text, LIMIT_S, base) is None
    return trial.call(worker, **options)


def is_sum(trial, called, sign=1):
    x, y = trial.values["x"], trial.values["y"]
    return torch.equal(called.outputs[0], x + sign * y)


def test_an_edit_of_one_kernel_runs_and_is_gone_with_the_next(lab_1):
    worker, trial = lab_1
    assert is_sum(trial, result(worker, trial, swap(LAB_1, *MINUS), LAB_1), sign=-1)
    assert is_sum(trial, result(worker, trial, LAB_1, LAB_1))
    twice = result(worker, trial, swap(LAB_1, *TWICE), LAB_1)
    assert torch.equal(twice.outputs[0], 2 * (trial.values["x"] + trial.values["y"]))
    assert is_sum(trial, result(worker, trial, LAB_1, swap(LAB_1, *MINUS)))


def test_a_module_is_imported_once_for_all_edits_of_a_kernel(lab_1):
    worker, trial = lab_1
    for pair in (MINUS, TWICE, MINUS):
        result(worker, trial, swap(COUNTED, *pair), COUNTED)
    assert result(worker, trial, COUNTED + SHOWN, COUNTED).outputs[0].unique().tolist() == [2.0]
    assert result(worker, trial, COUNTED + SHOWN).outputs[0].unique().tolist() == [3.0]


@pytest.mark.parametrize(
    "pairs",
    [
        [("(triton.cdiv(n, BLOCK),)", "(n // BLOCK,)")],
        [MINUS, ("(triton.cdiv(n, BLOCK),)", "(n // BLOCK,)")],
    ],
    ids=["host code", "a kernel and host code"],
)
def test_other_edits_are_imported_as_a_whole(lab_1, pairs):
    worker, trial = lab_1
    text = LAB_1
    for pair in pairs:
        text = swap(text, *pair)
    called = result(worker, trial, text, LAB_1)
    assert called.untouched[0].any()
    assert is_sum(trial, result(worker, trial, LAB_1, LAB_1))


@pytest.mark.parametrize("line", ["    if:", "    return 1 +", "    no_such_name"])
def test_a_kernel_that_fails_is_gone_with_the_next_edit(lab_1, line):
    worker, trial = lab_1
    at = LAB_1.index("    tl.store(")
    broken = LAB_1[:at] + line + "\n" + LAB_1[at:]
    assert worker.edit(broken, LIMIT_S, LAB_1) or trial.call(worker) is None
    assert is_sum(trial, result(worker, trial, LAB_1, LAB_1))


def test_one_program_alone_writes_its_own_block(lab_1):
    worker, trial = lab_1
    text = swap(LAB_1, "(triton.cdiv(n, BLOCK),)", "(triton.cdiv(n, 256),)", "BLOCK=BLOCK", "BLOCK=256")
    for number, columns in ((0, range(256)), (3, range(768, 1009)), (4, range(0))):
        called = result(worker, trial, text, LAB_1, only=OneProgram(0, number))
        assert (~called.untouched[0]).nonzero().flatten().tolist() == [*columns]
    assert is_sum(trial, trial.call(worker))
    called = trial.call(worker, only=OneProgram(1, 0))  # of a launch that there is not: the first one runs
    assert is_sum(trial, called)


OPERATOR = """

from torch.library import triton_op, wrap_triton


@triton_op("course::added", mutates_args={"out"})
def added(x: torch.Tensor, y: torch.Tensor, out: torch.Tensor) -> None:
    wrap_triton(elementwise_add_kernel)[(triton.cdiv(x.numel(), BLOCK),)](x, y, out, x.numel(), BLOCK=BLOCK)


def elementwise_add(x, y, *, out=None):
    added(x, y, out)
    return out
"""


def test_an_operator_of_a_module_that_is_kept_lives_on_when_another_text_has_one_of_its_name(lab_1):
    """PyTorch destroys an operator whose name is taken again; a call of it may end the process."""
    worker, trial = lab_1
    text = LAB_1 + OPERATOR
    for _ in range(5):
        assert worker.keep(text, LIMIT_S) is None
        assert is_sum(trial, trial.call(worker, selected={"0": 0}))
        assert is_sum(trial, result(worker, trial, swap(text, *MINUS)), sign=-1)
