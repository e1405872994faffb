"""A random choice is the same for every config of the autotuner; which config runs is the grader's to say."""

from grader.course.specimens import Specimen
from grader.tests.helpers.course import swap
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


def test_a_choice_that_does_not_passes_under_every_config(tmp_path):
    right = outcome(tmp_path, "at")
    assert right.label == "PASS", right.where
