"""What NumPy says while the interpreter computes is no print of the student's file."""

KERNEL = """import torch
import triton
import triton.language as tl


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n, other=0.0)
    y = tl.load(y_ptr + offs, mask=offs < n, other=0.0)
    tl.store(out_ptr + offs, tl.exp(1e4 + x) / (y - y), mask=offs < n)


def elementwise_add(x, y, *, out=None):
    print("of the file")
    add_kernel[(1,)](x, y, out, x.numel(), BLOCK=1024)
    return out
"""
CASE = "elementwise_add/n=7,fp32"


def test_only_the_file_prints(submissions):
    (outcome,) = submissions.grade(1, KERNEL, CASE).values()
    assert outcome.label == "WRONG/NONFINITE"
    assert set(outcome.printed.split("\n")) <= {"of the file", ""}
    assert "of the file" in outcome.printed
