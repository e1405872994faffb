"""Causes of errors in which one value stands in the place of another: mask, axis, pointer, result."""

import pytest

from grader.course.spec import Verdict
from grader.judge import error_causes
from grader.judge.error_causes import FileFacts
from grader.results.findings import Frame
from grader.results.outcome import Outcome

FILE = """import triton
import triton.language as tl


@triton.jit
def fold(acc, m, x):
    top = tl.maximum(m, tl.max(x, 0))
    return acc + x, top


@triton.jit
def kernel(x_ptr, out_ptr, n, stride, AXIS: tl.constexpr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    inside = offs < n
    x = tl.load(x_ptr + offs, inside, 0.0)
    m = 0.0
    acc = tl.zeros((BLOCK,), tl.float32)
    acc, m = fold(acc, m, x)
    top = tl.max(x, AXIS)
    tl.store(out_ptr + offs, acc, inside)


def function(x, out):
    (n, width), rest = x.shape, 0
    kernel[(1,)](x, out, n, x.stride(0), AXIS=0, BLOCK=64)
"""
MASK = "ValueError: Mask must have boolean scalar type"
AXIS = "ValueError: axis [0.99110144] out of bounds for shape []"
SHAPES = "ValueError: Cannot make_shape_compatible: incompatible dimensions at index 1: 32 and 16"
NO_TENSOR = "AttributeError: 'int' object has no attribute 'dtype'"


def cause(where, old="", new=""):
    """The cause of an error at the place of the change; at the last load where nothing is changed."""
    assert old in FILE
    text = FILE.replace(old, new, 1) if old else FILE
    lines = text.splitlines()
    launch = next(at for at, line in enumerate(lines, 1) if "kernel[" in line)
    at = next((at for at, line in enumerate(lines, 1) if new and new in line), 15)
    frames = [Frame(line=at, function="kernel", code=lines[at - 1].strip())]
    frames += [Frame(line=launch, function="function", code=lines[launch - 1].strip())]
    outcome = Outcome(Verdict.CRASHED, where=where, frames=tuple(frames))
    return error_causes.with_cause(outcome, FileFacts(text)).cause


FOUND = {
    "value and mask": (MASK, "offs, acc, inside", "offs, inside, acc", "`inside` and `acc` are exchanged"),
    "value and mask in place": (MASK, "offs, acc, inside", "offs, offs < n, acc", "`offs < n` and `acc`"),
    "a mask that is none": (MASK, "offs, acc, inside", "offs, acc, x", "its third argument, is `x`"),
    "other for the mask": (MASK, "offs, inside, 0.0)", "offs, 0.0)", "its second argument, is `0.0`"),
    "mask by name": (MASK, "offs, inside, 0.0)", "offs, mask=n)", "mask of `tl.load` is `n`"),
    "two values for max": (AXIS,
                           "tl.maximum(m, tl.max(x, 0))", "tl.max(m, tl.max(x, 0))", "takes two values"),
    "two values for sum": (AXIS,
                           "acc = tl.zeros((BLOCK,), tl.float32)", "acc = tl.sum(x, x * 2.0)", "`x * 2.0`"),
    "an argument is missing": (NO_TENSOR, "(x, out, n, x.stride(0),", "(x, n, x.stride(0),",
                               "`n`, a number, for the pointer `out_ptr`: 3 of 4 arguments are passed"),
    "a size for a pointer": (NO_TENSOR, "(x, out, n, x.stride(0),", "(x, x.shape[0], n, x.stride(0),",
                             "`x.shape[0]`, a number, for the pointer `out_ptr`"),
    "results in another order": (SHAPES, "return acc + x, top", "acc += x\n    return top, acc",
                                 "`fold` returns `top, acc` and is unpacked as `acc, m`"),
}  # fmt: skip


@pytest.mark.parametrize(("where", "old", "new", "said"), FOUND.values(), ids=FOUND)
def test_what_stands_in_the_place_of_another_is_named(where, old, new, said):
    assert said in cause(where, old, new)


@pytest.mark.parametrize("where", [AXIS, SHAPES, NO_TENSOR])
def test_a_file_in_which_each_value_has_its_place_gets_no_such_cause(where):
    found = cause(where)
    assert not any(word in found for word in ("exchanged", "two values", "for the pointer", "unpacked"))
