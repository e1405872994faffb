"""What a kernel computes is the same for every config of the autotuner; the grader says which one runs."""

import pytest

from grader.course import catalog
from grader.course.items import CORRECTNESS, graded_items
from grader.course.specimens import Specimen
from grader.judge.run import Run
from grader.judge.usual_config import in_words
from grader.tests.helpers.course import ROOT, SEED, solution, swap
from grader.tests.whole.corpus import Examiner

BY_BLOCK = """
import torch
import triton
import triton.language as tl

CONFIGS = [triton.Config({"BLOCK": block}) for block in (256, 512, 1024)]


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def dropped(x_ptr, out_ptr, n, p, scale, seed, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    random = tl.rand(seed, COUNTER)
    x = tl.load(x_ptr + at, mask=at < n, other=0.0).to(tl.float32)
    tl.store(out_ptr + at, tl.where(random < p, 0.0, x * scale).to(out_ptr.dtype.element_ty), mask=at < n)


def dropout_forward(x, *, p, seed, out=None):
    out = torch.empty_like(x) if out is None else out
    n = x.numel()
    scale = 1.0 / (1.0 - p) if p < 1 else 0.0
    dropped[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, out, n, p, scale, seed)
    return out
"""


def outcome(folder, counter):
    """Of the kernel whose random number for an element follows from this counter."""
    file = folder / "dropout.py"
    file.write_text(swap(BY_BLOCK, "COUNTER", counter))
    one = Specimen(file, file, ("",), ("",), ("dropout_forward",), "correctness", None, "", "", "")
    examiner = Examiner(folder / "graded", "cpu")
    try:
        return examiner.grade(one, "dropout_forward", screened=False)
    finally:
        examiner.close()


def test_a_choice_that_depends_on_the_config_is_found(tmp_path):
    wrong = outcome(tmp_path, "tl.program_id(0) * 1024 + tl.arange(0, BLOCK)")
    assert (wrong.label, wrong.hint) == ("WRONG/NONDETERMINISTIC", 9)
    assert wrong.where == "two configs of the autotuner give different results"


@pytest.mark.slow
def test_a_choice_that_does_not_passes_under_every_config(tmp_path):
    right = outcome(tmp_path, "at")
    assert right.label == "PASS", right.where


@pytest.mark.slow
def test_a_choice_that_depends_on_the_dtype_is_found(tmp_path):
    wrong = outcome(tmp_path, "at // x_ptr.dtype.element_ty.primitive_bitwidth * 64 + at % 32")
    assert (wrong.label, wrong.hint) == ("WRONG/NONDETERMINISTIC", 9)
    assert wrong.where == "the same call in fp16 makes another random choice"


def tuned_add(submissions, grid, sum_="x + y"):
    """The outcomes of lab 1's cases on a CPU for its solution with ten configs."""
    configs = "[triton.Config({'BLOCK': 16 << at}) for at in range(10)]"
    text = swap(solution(1), "@triton.jit", f"@triton.autotune({configs}, key=['n'])\n@triton.jit")
    text = swap(text, "n, BLOCK=BLOCK)", "n)", "(triton.cdiv(n, BLOCK),)", grid, "x + y", sum_)
    (exercise,) = next(entry for entry in catalog.find() if entry.number == 1).lab.exercises
    cases = [f"{exercise.name}/{case.name}" for case in exercise.cases if not case.needs_gpu]
    return submissions.grade(1, text, *cases)


@pytest.mark.parametrize("block", [16, 512, 8192])
def test_a_mistake_in_one_of_ten_configs_is_found(submissions, block):
    sum_ = f"x + y + (1.0 if BLOCK == {block} else 0.0)"
    found = tuned_add(submissions, "lambda meta: (triton.cdiv(n, meta['BLOCK']),)", sum_)
    wrong = [one for one in found.values() if one.verdict.value == "WRONG"]
    assert wrong
    assert len(wrong) < len(found)
    assert any(
        one.configs["elementwise_add_kernel"].startswith(f"BLOCK: {block},") for one in wrong if one.configs
    )


def test_a_grid_for_one_block_names_the_configs(submissions):
    found = tuned_add(submissions, "(triton.cdiv(n, 512),)")
    told = {one.plain_cause for one in found.values() if one.configs}
    assert told
    assert all(
        words.startswith("not found; `elementwise_add_kernel` is right with the config BLOCK=")
        for words in told
    )


def test_the_settings_that_differ_are_named():
    right = {"k": "BLOCK_M: 64, BLOCK_N: 64, num_warps: 4"}
    wrong = {"k": "BLOCK_M: 64, BLOCK_N: 32, num_warps: 4"}
    assert (
        in_words(right, wrong)
        == "not found; `k` is right with the config BLOCK_N=64, and wrong with BLOCK_N=32"
    )
    assert (
        in_words(right, {})
        == "not found; it is right with one config of an autotuned kernel, and wrong with another"
    )


@pytest.mark.slow
def test_of_a_mask_within_the_block_the_blocks_are_not_made_square(tmp_path):
    (entry,) = (one for one in catalog.capstone() if one.folder.name == "triton-kernels")
    (exercise,) = (one for one in entry.lab.exercises if one.name == "attention")
    file = entry.submission(tmp_path, exercise)
    file.parent.mkdir(parents=True)
    text = entry.submission(ROOT / "solutions", exercise).read_text()
    place = "tl.arange(0, scores.shape[0])[:, None] >= tl.arange(0, scores.shape[1])[None, :]"
    file.write_text(swap(text, "offs_m[:, None] >= keys[None, :]", place))
    run = Run(tmp_path, "cpu", SEED, None)
    try:
        asked = [one for one in graded_items(entry) if one.exercise.name == "attention"]
        asked = [one for one in asked if one.kind == CORRECTNESS and not one.case.needs_gpu]
        answers = [(one, run.answer(one), 0.0) for one in asked]
        found = run.explained(answers, lambda _: None, lambda *_: None)
        causes = [one.cause for _, one, _ in found if one.configs]
    finally:
        run.close()
    assert causes
    assert not any("is the wrong value" in cause for cause in causes), causes
