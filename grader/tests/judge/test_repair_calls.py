"""Edits of calls, and of loops that do not update what they read: one of them gives the right text again."""

import pytest

from grader.judge.repair import addresses
from grader.judge.repair.candidates import candidates
from grader.judge.repair.source import Source
from grader.tests.judge.test_repair_candidates import plain, plain_or_none

FILE = """
import math

import torch
import triton
import triton.language as tl


@triton.heuristics({"TILES": lambda args: max(triton.cdiv(args["n_cols"], args["TILE"]), 1)})
@triton.jit
def kernel(
    x_ptr, y_ptr, b_ptr, out_ptr, n_cols, stride, BLOCK: tl.constexpr, TILE: tl.constexpr, TILES: tl.constexpr
):
    cols = tl.arange(0, BLOCK)
    source = tl.make_block_ptr(x_ptr, (n_cols,), (1,), (0,), (BLOCK,), (0,))
    second = tl.make_block_ptr(y_ptr, (n_cols,), (1,), (0,), (BLOCK,), (0,))
    total = tl.zeros((BLOCK,), tl.float32)
    for _ in range(0, n_cols, BLOCK):
        total += tl.load(source, boundary_check=(0,)) * tl.load(second, boundary_check=(0,))
        source = tl.advance(source, (BLOCK,))
        second = tl.advance(second, (BLOCK,))
    b = tl.load(b_ptr + cols[:, None] * stride + cols[None, :])
    product = tl.dot(tl.trans(b), b)
    tl.store(out_ptr + cols, tl.maximum(total + tl.sum(product, axis=0), 0.0))
    tl.store(out_ptr + cols + BLOCK, tl.exp(total) - 1.0)


def function(x, y, b, scale=None, *, out=None):
    if out is None:
        out = torch.empty_like(x)
    (n,) = x.shape
    programs = max(1, triton.cdiv(n, 512))
    kernel[(programs,)](x, y, b, out, n, b.stride(0), BLOCK=512, TILE=64)
    return out * math.sqrt(n) * (1.0 if scale is None else scale)
"""
MISTAKES = {
    "a block pointer that stays": ("        second = tl.advance(second, (BLOCK,))\n", ""),
    "a block that is read in another order": ("tl.trans(b)", "tl.reshape(b, (BLOCK, BLOCK))"),
    "a term outside of the call": (
        "tl.maximum(total + tl.sum(product, axis=0), 0.0)",
        "tl.maximum(total, 0.0) + tl.sum(product, axis=0)",
    ),
    "a term inside of the call": ("tl.exp(total) - 1.0", "tl.exp(total - 1.0)"),
    "the nearest number of programs": ("triton.cdiv(n, 512)", "round(n / 512)"),
    "a number of programs rounded down": ("max(1, triton.cdiv(n, 512))", "max(1, n // 512)"),
    "a number of tiles rounded down": (
        'triton.cdiv(args["n_cols"], args["TILE"])', 'args["n_cols"] // args["TILE"]',
    ),
    "the root of a whole number": ("math.sqrt(n)", "math.isqrt(n)"),
    "a default by `or`, which a zero takes as well": ("1.0 if scale is None else scale", "scale or 1.0"),
    "an input in place of a new tensor": ("out = torch.empty_like(x)", "out = x"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_an_edit_gives_the_right_text(mistake):
    right, wrong = MISTAKES[mistake]
    assert FILE.count(right) == 1
    source = Source(FILE.replace(right, wrong))
    texts = [plain_or_none(source, edit) for edit in candidates(source, "function")]
    assert plain(FILE) in texts


def test_a_loop_is_given_no_update_of_a_number():
    """Only what is loaded from or stored to moves on as the pointer beside it does."""
    edits = candidates(Source(FILE), "function")
    assert not [edit for edit in edits if "does not update" in edit.mistake and "`n_cols`" in edit.mistake]


def test_no_edit_changes_how_many_programs_share_the_work():
    """With more programs each has less to do, which hides what one iteration leaves to the next."""
    shared = "min(16, triton.cdiv(n, 512))"
    source = Source(FILE.replace("max(1, triton.cdiv(n, 512))", shared))
    first = source.text.index(shared)
    last = first + len(shared)
    touched = [span for edit in candidates(source, "function") for span, _ in edit.parts]
    assert touched
    assert not [(begin, end) for begin, end in touched if first <= begin and end <= last]


TWO_LOADS = """
@triton.jit
def kernel(x_ptr, n, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + cols, mask=cols < n, other=-1.0).to(tl.float32)
    {}
    tl.store(x_ptr + cols, x)


def function(x):
    kernel[(1,)](x, len(x), BLOCK=64)
"""
UNLIKE = {
    "x = tl.load(x_ptr + cols, mask=cols < n, other=0.0).to(tl.float32)": " in  is not as in line ",
    "x = tl.load(x_ptr + cols, mask=cols < n).to(tl.float32)": " is missing in , and line  has it",
    "x = tl.load(x_ptr + cols, mask=cols < n, other=-1.0)": (
        "the value in  is not converted to another type, as it is in line "
    ),
    "x = tl.load(x_ptr + 2 * cols, mask=cols < n, other=-1.0).to(tl.float32)": " in  is not as in line ",
    "x = tl.load(x_ptr + cols, cols < n, -1.0).to(tl.float32)": " has another value in  than in line ",
    "x = tl.load(x_ptr + 2 * cols, mask=cols < n).to(tl.float32)": " has another value in  than in line ",
}


@pytest.mark.parametrize("line", UNLIKE)
def test_of_two_values_of_a_name_the_part_that_differs_is_named(line):
    edits = candidates(Source(TWO_LOADS.format(line)), "function")
    assert UNLIKE[line] in {edit.kind for edit in edits if edit.line == 6}


PARTS = """
STEP, OTHER = tl.constexpr(4), 8


@triton.jit
def kernel(x_ptr, w_ptr, n, programs, BLOCK: tl.constexpr):
    for start in range(0, n, programs):
        cols = start + tl.arange(0, BLOCK)
        g = tl.load(x_ptr + cols) * tl.load(w_ptr + cols)
        d = tl.load(w_ptr + cols) - 1.0
        total = tl.sum({}, axis=0)
        tl.store(x_ptr + start * STEP, total + d)


def function(x, w):
    kernel[(1,)](x, w, len(x), 1, BLOCK=64)
"""
LACKING = {
    (
        "tl.load(x_ptr + cols)",
        "g",
    ): "the factor `tl.load(w_ptr + cols)` is missing in `tl.load(x_ptr + cols)`",
    ("tl.load(w_ptr + cols)", "d"): "`1.0` is not subtracted in `tl.load(w_ptr + cols)`",
    ("g", "(tl.load(x_ptr + cols))"): "`g` has the factor `tl.load(w_ptr + cols)`, which does not belong in ",
    ("d", "(tl.load(w_ptr + cols))"): "`d` has `1.0` subtracted, which does not belong in ",
}


@pytest.mark.parametrize(("here", "there"), LACKING)
def test_a_part_of_what_has_a_name_stands_for_it_and_the_other_way_round(here, there):
    edits = candidates(Source(PARTS.format(here)), "function")
    mistakes = {edit.mistake for edit in edits if edit.line == 11 and there in dict(edit.parts).values()}
    assert any(one.startswith(LACKING[here, there]) for one in mistakes), mistakes


def test_a_step_may_lack_a_size_of_the_module_that_the_kernel_reads():
    edits = candidates(Source(PARTS.format("g")), "function")
    steps = [edit for edit in edits if edit.line == 7 and edit.mistake.startswith("the step of ")]
    written = {text for edit in steps for _, text in edit.parts}
    assert "(programs) * STEP" in written
    assert "(programs) * OTHER" not in written


def test_the_larger_of_two_numbers_has_no_axis():
    text = FILE.replace("total += ", "divisor = max(n_cols - 1, 1)\n        total += ")
    mistakes = [edit.mistake for edit in candidates(Source(text), "kernel")]
    assert not [one for one in mistakes if "max(n_cols - 1, 1)" in one and "axis" in one]
    assert [one for one in mistakes if "tl.sum(product, axis=0)" in one and "axis" in one]


def test_a_tensor_that_is_made_contiguous_may_be_exchanged_with_another():
    text = (
        FILE
        + "\n\ndef first(a, b):\n    return a\n\n\ndef second(dy, y):\n    return first(y, dy.contiguous())\n"
    )
    found = [edit for edit in candidates(Source(text), "second") if "are exchanged" in edit.mistake]
    assert "return first(dy.contiguous(), y)" in "".join(
        Source(text).with_replaced(edit.parts) for edit in found
    )


LENGTHS = """
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    first = tl.program_id(0) * BLOCK
    wide = tl.arange(0, BLOCK)
    at = first + wide
    rest = tl.arange(0, 16)
    tl.store(out_ptr + at, tl.load(x_ptr + rest))
"""


def test_other_elements_are_those_of_another_program_only_where_they_are_made_of_its_number():
    source = Source(LENGTHS)
    found = {
        edit.parts[0][1]: edit.mistake
        for edit in addresses.edits(source, source.functions["kernel"])
        if "arange(0, 16)" in edit.mistake
    }
    assert found["at"] == "`tl.arange(0, 16)` counts from 0 in each program"
    assert found["wide"] == "`tl.arange(0, 16)` has the wrong length"


HALF = """
@triton.jit
def plus(x_ptr, y_ptr, cols):
    return (tl.load(x_ptr + cols) + tl.load(y_ptr + cols)).to(x_ptr.dtype.element_ty)


@triton.jit
def kernel(x_ptr, y_ptr, out_ptr, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    t = plus(x_ptr, y_ptr, cols)
    tl.store(out_ptr + cols, t * t)


def function(x, y, out):
    kernel[(1,)](x, y, out, BLOCK=64)
"""


@pytest.mark.parametrize(
    ("line", "right"),
    [
        (11, "tl.store(out_ptr + cols, (((t).to(tl.float32) * (t).to(tl.float32))))"),
        (10, "t = plus(x_ptr, y_ptr, cols).to(tl.float32)"),
    ],
)
def test_what_a_function_of_the_kernel_returns_in_16_bits_is_converted_before_it_is_squared(line, right):
    edits = candidates(Source(HALF), "function")
    texts = [plain_or_none(Source(HALF), edit) for edit in edits if edit.line == line]
    assert plain(HALF.replace(HALF.split("\n")[line - 1].strip(), right)) in texts
