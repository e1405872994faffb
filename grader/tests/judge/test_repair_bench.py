"""Which program of a launch is run alone, and that a try of an edit says what the whole call says."""

import math

import pytest

from grader.course import catalog
from grader.course.submission import Submission
from grader.judge.repair.bench import Bench, Observed, _is_like
from grader.judge.repair.edit import Edit
from grader.tests.helpers.course import solution, swap
from grader.worker.messages import OneProgram
from grader.worker.shared_memory import Arena
from grader.worker.submission_worker import SubmissionWorker

RIGHT = swap(solution(1), "BLOCK = 1024", "BLOCK = 64")
WRONG = swap(RIGHT, "x + y, mask=mask", "x - y, mask=mask")
IN_THE_LAST = swap(RIGHT, "x + y, mask=mask", "x + tl.where(pid == 15, 0.0, y), mask=mask")
CASE = "n=1009,fp32"  # 16 programs


@pytest.fixture
def bench(warm, tmp_path):
    """A bench for lab 1 in the interpreter."""
    entry = next(entry for entry in catalog.find() if entry.number == 1)
    (exercise,) = entry.lab.exercises
    (tmp_path / "elementwise_add.py").write_text(RIGHT)
    arena = Arena.create("cpu", 1 << 24)
    worker = SubmissionWorker(warm, Submission.read(tmp_path / "elementwise_add.py"), arena, interpreted=True)
    bench = Bench(worker, exercise, [next(one for one in exercise.cases if one.name == CASE)], [], 0)
    yield bench
    worker.close()
    arena.close()


def test_a_text_must_keep_cases_of_other_exercises_of_the_file_right(warm, tmp_path):
    entry = next(entry for entry in catalog.find() if entry.number == 2)
    forward, backward = entry.lab.exercises[:2]
    case = next(one for one in forward.cases if one.name == "rows=5,cols=127,fp32")
    text, path = solution(2), tmp_path / forward.file
    path.write_text(swap(text, "(tl.exp(x - m) / d)", "(tl.exp(x - m) * d)"))
    arena = Arena.create("cpu", 1 << 24)
    worker = SubmissionWorker(warm, Submission.read(path), arena, interpreted=True)
    alone = Bench(worker, forward, [case], [], 0)
    beside = Bench(worker, forward, [case], [], 0, beside=[(backward, case)])
    for edited, keeps in ((text, True), (swap(text, "(dy - dot)", "(dy + dot)"), False)):
        assert alone.score(edited) == beside.score(edited) == 1.0
        assert alone.keeps()
        assert beside.keeps() is keeps
    worker.close()
    arena.close()


def test_an_edit_with_which_other_kernels_run_says_so():
    edit = Edit(0, 3, "`a` is the wrong value in `b`", ())
    around = edit.avoiding()
    assert around.goes_around
    assert not around.is_local
    assert around.avoiding() is around
    assert not edit.goes_around


def wrong_program(bench, text):
    bench.aim(bench.failing[0].case, text)
    return bench.observed(text).only


def test_a_program_that_stores_wrong_elements_is_found(bench):
    assert wrong_program(bench, WRONG) == OneProgram(0, 0)
    assert wrong_program(bench, IN_THE_LAST) == OneProgram(0, 15)


@pytest.mark.parametrize(
    "text",
    [
        RIGHT,
        swap(WRONG, "BLOCK = 64", "BLOCK = 2048"),
        swap(
            WRONG,
            "    tl.store(out_ptr + offs, x - y, mask=mask)",
            "    tl.atomic_add(out_ptr + offs, x - y, mask=mask)",
        ),
        swap(RIGHT, "(triton.cdiv(n, BLOCK),)", "(n // BLOCK,)"),
        swap(RIGHT, "    tl.store(", "    tl.no_such_function("),
    ],
    ids=["all are right", "one program", "sums of several", "elements without a program", "a crash"],
)
def test_where_no_program_is_wrong_by_itself_all_of_them_run(bench, text):
    assert wrong_program(bench, text) is None


def test_a_text_that_mends_one_program_is_tried_with_all(bench):
    bench.aim(bench.failing[0].case, WRONG, Observed(only=OneProgram(0, 0)))
    first = swap(RIGHT, "x + y, mask=mask", "x + tl.where(pid == 0, y, 0.0), mask=mask")
    assert bench.score(RIGHT) == 1.0
    assert 0.0 < bench.score(first) < 1.0
    assert bench.score(WRONG) < 0.5
    assert bench.score(swap(RIGHT, "    tl.store(", "    tl.no_such_function(")) == -1.0
    assert bench.score(RIGHT) == 1.0


TWICE = swap(RIGHT, "(triton.cdiv(n, BLOCK),)", "(2 * triton.cdiv(n, BLOCK),)")


@pytest.mark.parametrize(
    ("text", "again"),
    [
        (RIGHT, 0),
        (TWICE, 0),  # the second half has nothing to do
        (swap(TWICE, "offs = pid * BLOCK", "offs = pid // 2 * BLOCK"), 1009),
        (swap(RIGHT, "    tl.store(", "    tl.store(out_ptr + offs, x, mask=mask)\n    tl.store("), 1009),
    ],
    ids=["each once", "more programs than are needed", "two programs each", "two stores of a program"],
)
def test_elements_that_are_stored_once_more_are_counted(bench, text, again):
    bench.aim(bench.failing[0].case, text)
    seen = bench.observed(text)
    assert seen.again == again
    assert seen.right == [True]
    assert seen.lanes >= 3 * 1009


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("(triton.cdiv(n, BLOCK),)", "(n // BLOCK,)", "    tl.store(out_ptr + offs, x + y, mask=mask)"),
        ("x + y, mask=mask)", "x + y)", "    tl.store(out_ptr + offs, x + y)"),
        ("tl.load(y_ptr + offs, mask=mask", "tl.load(y_ptr + offs", None),
        ("x + y, mask=mask", "x - y, mask=mask", ""),
    ],
    ids=["never stored", "stored outside", "read outside", "a wrong value"],
)
def test_lines_that_are_wrong_by_address_or_mask_are_suspects(bench, old, new, line):
    text = swap(RIGHT, old, new)
    lines = text.split("\n")
    bench.aim(bench.failing[0].case, text)
    found = {lines[at - 1] for at in bench.observed(text).suspects}
    assert found == ({one for one in lines if new in one} if line is None else {line} - {""})


def test_of_a_large_case_a_smaller_one_is_found_without_a_call_of_it(warm, tmp_path, monkeypatch):
    entry = next(entry for entry in catalog.find() if entry.number == 1)
    (exercise,) = entry.lab.exercises
    text = swap(RIGHT, "(triton.cdiv(n, BLOCK),)", "(min(triton.cdiv(n, BLOCK), 8),)")
    (tmp_path / "elementwise_add.py").write_text(text)
    arena = Arena.create("cpu", 1 << 26)
    worker = SubmissionWorker(warm, Submission.read(tmp_path / "elementwise_add.py"), arena, interpreted=True)
    cases = {one.name: one for one in exercise.cases}
    large, middle, small = (cases[name] for name in ("n=1048579,fp32", "n=1009,fp32", "n=129,fp32"))
    bench = Bench(worker, exercise, [large], [small], 0)
    called, score = [], Bench.score

    def counted(self, *asked):
        called.append(self._target.case.params["n"])
        return score(self, *asked)

    monkeypatch.setattr(Bench, "score", counted)
    assert bench.shrunk(text, bench.cheapest(text), [large, middle, small]).params == middle.params
    assert called == [129, 1009]
    worker.close()
    arena.close()


TWO_KERNELS = """
import torch
import triton
import triton.language as tl


@triton.jit
def first(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offs, tl.load(x_ptr + offs, mask=offs < n), mask=offs < n)


@triton.jit
def second(y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(out_ptr + offs, mask=offs < n)
    tl.store(out_ptr + offs, x - tl.load(y_ptr + offs, mask=offs < n), mask=offs < n)


def elementwise_add(x, y, *, out=None):
    out = torch.empty_like(x) if out is None else out
    grid = (triton.cdiv(x.numel(), 64),)
    first[grid](x, out, x.numel(), BLOCK=64)
    second[grid](y, out, x.numel(), BLOCK=64)
    return out
"""


def test_launches_before_a_changed_kernel_are_repeated_and_not_run(bench):
    bench.aim(bench.failing[0].case, TWO_KERNELS)
    bench.aim(bench.failing[0].case, TWO_KERNELS, bench.observed(TWO_KERNELS))
    edited = swap(TWO_KERNELS, "x - tl.load(y", "x + tl.load(y")
    assert bench.score(TWO_KERNELS) == bench.score(TWO_KERNELS, most=2, changed=("second",)) < 1.0
    of_one = bench.spent
    assert bench.score(TWO_KERNELS, most=0) < 1.0
    assert of_one < bench.spent
    assert bench.score(edited, most=2, changed=("second",)) == 1.0
    # What the first kernel stores is repeated: an edit of it does nothing if another one is said to change.
    lost = swap(edited, "tl.load(x_ptr + offs, mask=offs < n), mask", "0.0, mask")
    assert bench.score(lost, most=2, changed=("first",)) < 1.0


def test_a_call_ends_after_so_many_loads_and_stores(bench):
    bench.aim(bench.failing[0].case)
    bench.most = 16 * 3  # two loads and a store of each program
    assert bench.score(RIGHT) == 1.0
    assert bench._worker.witnessed.accesses == bench.most
    begin, end = RIGHT.split("    tl.store(out_ptr + offs, x + y, mask=mask)\n")
    endless = f"{begin}    while n > 0:\n        tl.store(out_ptr + offs, x + y, mask=mask)\n{end}"
    assert bench.score(endless) == -1.0
    assert bench._worker.witnessed.accesses <= bench.most


def test_a_text_that_fails_in_a_case_is_told_from_one_that_is_wrong_there(bench):
    assert bench.worst(WRONG) == 0
    assert not bench.fails
    assert bench.worst(swap(RIGHT, "    tl.store(", "    tl.no_such_function(")) == 0
    assert bench.fails


@pytest.mark.parametrize(
    ("score", "base", "is_like"),
    [
        (0.3, 0.2, True),
        (0.0, 0.2, False),  # no element is a number: another mistake shows
        (0.0, 0.0, True),
        (-1.0, 0.0, False),
        (-1.0, -1.0, True),
        (0.6, 0.2, False),
        (1.0, 0.9, False),
        (0.5, None, True),
        (-1.0, None, False),
    ],
)
def test_a_smaller_case_is_like_a_larger_one_if_it_fails_in_the_same_way(score, base, is_like):
    assert _is_like(score, base) is is_like


@pytest.mark.parametrize(("until", "mended"), [(math.inf, {0}), (-math.inf, set())])
def test_what_is_not_called_in_time_is_taken_for_wrong(warm, tmp_path, until, mended):
    entry = next(entry for entry in catalog.find() if entry.number == 1)
    (exercise,) = entry.lab.exercises
    (tmp_path / "elementwise_add.py").write_text(RIGHT)
    arena = Arena.create("cpu", 1 << 24)
    worker = SubmissionWorker(warm, Submission.read(tmp_path / "elementwise_add.py"), arena, interpreted=True)
    case = next(one for one in exercise.cases if one.name == CASE)
    assert Bench(worker, exercise, [case], [], 0, until=until).mended_by(RIGHT) == mended
    worker.close()
    arena.close()


def test_failing_cases_are_shared_among_workers(bench):
    assert bench.mended_by(RIGHT, share=(0, 2)) == {0}
    assert bench.mended_by(RIGHT, share=(1, 2)) == set()
