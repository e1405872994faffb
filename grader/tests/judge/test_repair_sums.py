"""Edits of sums, groups and shares: one of them gives a file that does what the right one does."""

import functools

import pytest

from grader.judge.repair.candidates import candidates
from grader.judge.repair.source import Source
from grader.tests.judge.test_repair_candidates import plain, plain_or_none

FILE = """
import torch
import triton
import triton.language as tl
from rows import load, on

UNIT = tl.constexpr(1.0 / 4294967296.0)
EPS = 1e-5


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP: tl.constexpr):
    size = GROUP * tl.cdiv(N, BLOCK_N)
    first = (tile // size) * GROUP
    inside = tile % size
    rows = inside % GROUP
    cols = inside // GROUP
    return first + rows, cols


@triton.jit
def kernel(
    x_ptr, w_ptr, b_ptr, out_ptr, n_rows, n_cols, stride_x, stride_out, eps, SPLIT: tl.constexpr,
    TILES: tl.constexpr,
):
    m, n = place(tl.program_id(0), n_rows, n_cols, 16, 32, 4)
    share = n_rows // tl.num_programs(1)
    begin = tl.program_id(1) * share
    end = begin + share
    pointer = x_ptr
    total = 0.0
    for start in range(0, n_cols, TILES * SPLIT):
        cols = start + tl.arange(0, 64)
        x = load(pointer, cols, n_cols)
        total += tl.sum(x - eps, axis=0)
        pointer += TILES * stride_x
    for start in range(begin, end):
        cols = n + tl.arange(0, 64)
        t = tl.load(x_ptr + start * stride_x + cols, mask=n + cols < n_cols)
        scale = load(w_ptr, cols, n_cols) * total
        square = (t * t).to(tl.float32)
        square += x * x + scale * scale
        square += square * scale * (x - total)
        tl.store(out_ptr + start * stride_out + cols, square * scale - total * UNIT, mask=cols < n_cols)


def function(x, weight, bias, out, eps=EPS):
    n_rows, n_cols = x.shape
    launch = on(kernel, x)[(4, triton.cdiv(n_rows, 16))]
    launch(
        x, weight, bias, out, n_rows, n_cols,
        out.stride(0), x.stride(0), eps, SPLIT=2, TILES=64,
    )


class Own(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, eps):
        ctx.save_for_backward(x)
        return function(x, weight, weight, x, eps)

    @staticmethod
    def backward(ctx, dy):
        return function(dy, dy, dy, dy, EPS), None, None
"""
LAST = "min(tl.cdiv(M, BLOCK_M) - first, GROUP)"
RIGHT = {
    "the rows of the last group": [
        ("inside % GROUP", f"(inside % {LAST})"), ("inside // GROUP", f"(inside // {LAST})")
    ],
    "a share that is rounded up": [
        ("n_rows // tl.num_programs(1)", "tl.cdiv(n_rows, tl.num_programs(1))"),
        ("begin + share", "tl.minimum(begin + share, n_rows)"),
    ],
    "pointers that move as the loop does": [("+= TILES * stride_x", "+= (TILES * SPLIT) * stride_x")],
    "lanes past the end": [("tl.sum(x - eps", "tl.sum(tl.where(cols < n_cols, x - eps, 0.0)")],
    "numbers that are converted first": [("(t * t)", "(t.to(tl.float32) * t.to(tl.float32))")],
    "a factor that is loaded elsewhere": [("- total * UNIT", "- (total * UNIT) * load(w_ptr, cols, n_cols)")],
    "the square of a sum": [("x * x + scale * scale", "(x + scale) * (x + scale)")],
    "one of two factors of a sum": [
        ("square * scale * (x - total)", "scale * (x * square - total)"),
    ],
    "half of a number": [("4294967296.0", "2147483648.0")],
    "strides in a launch of several lines": [("out.stride(0), x.stride(0)", "x.stride(0), out.stride(0)")],
    "the eps of the forward pass": [
        ("dy, dy, dy, dy, EPS", "dy, dy, dy, dy, ctx.eps"),
        ("ctx.save_for", "ctx.eps = eps\n        ctx.save_for"),
    ],
}  # fmt: skip


@functools.cache
def edited(name):
    """Every text that an edit of FILE gives."""
    source = Source(FILE)
    return {plain_or_none(source, edit) for edit in candidates(source, name)}


@pytest.mark.parametrize("mistake", RIGHT)
def test_an_edit_gives_the_right_text(mistake):
    right = FILE
    for wrong, changed in RIGHT[mistake]:
        assert right.count(wrong) == 1, wrong
        right = right.replace(wrong, changed)
    assert plain(right) in edited("Own.backward" if "eps" in mistake else "function")


ONE_PASS = """
@triton.jit
def kernel(x_ptr, out_ptr, n_cols, BLOCK: tl.constexpr):
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + cols, mask=cols < n_cols, other=0.0)
        s += tl.sum(x, axis=0)
        y = x - s
        tl.store(out_ptr + cols, y, mask=cols < n_cols)


def function(x, out):
    kernel[(1,)](x, out, len(x), BLOCK=64)
"""


def test_what_is_made_of_a_sum_is_stored_in_a_second_pass():
    source = Source(ONE_PASS)
    (edit,) = (one for one in candidates(source, "function") if "still changes" in one.mistake)
    text = source.with_replaced(edit.parts)
    assert text.count("for start in range(0, n_cols, BLOCK):") == 2
    first, second = text.split("for start")[1:]
    assert ["tl.store" in one for one in (first, second)] == [False, True]
    assert ["s += " in one for one in (first, second)] == [True, False]
    assert edit.line == ONE_PASS[: ONE_PASS.index("tl.store")].count("\n") + 1


def test_a_second_pass_begins_where_the_first_one_did():
    moving = ONE_PASS.replace("cols = start + tl.arange(0, BLOCK)", "pass")
    moving = moving.replace("    s = 0.0\n", "    s = 0.0\n    cols = tl.arange(0, BLOCK)\n")
    source = Source(
        moving.replace("mask=cols < n_cols)\n\n", "mask=cols < n_cols)\n        cols += BLOCK\n\n")
    )
    (edit,) = (one for one in candidates(source, "function") if "still changes" in one.mistake)
    first, second = source.with_replaced(edit.parts).split("for start")[1:]
    assert "    cols = tl.arange(0, BLOCK)\n    " in first
    assert ["cols += BLOCK" in one for one in (first, second)] == [True, True]


def test_a_value_of_before_its_update_is_read():
    text = ONE_PASS.replace("x - s", "x - s * s")
    found = [one for one in candidates(Source(text), "function") if "not that of before" in one.mistake]
    texts = [Source(text).with_replaced(one.parts) for one in found]
    assert len(texts) == 2
    assert all("s_before = s\n        s += " in one for one in texts)
    assert {"x - s_before * s" in one for one in texts} == {True, False}


def test_a_launch_of_several_lines_runs_if_one_of_its_arguments_is_changed():
    """Its first line is where it runs; what is changed stands further down, and not behind it."""
    source = Source(FILE)
    begin = FILE.index("out.stride(0), x.stride(0), eps")
    line = FILE[: FILE.index("    launch(\n")].count("\n") + 1
    assert source.launches_before([((begin, begin + 13), "x.stride(0)")], [line]) == 0
    behind = FILE.index("class Own") - 3
    assert source.launches_before([((behind, behind), "")], [line]) == 0
    assert source.launches_before([((begin, begin), "")], [line - 1]) == 1


def test_an_edit_that_only_leaves_something_out_is_not_local():
    source = Source(FILE)
    left_out = [one for one in candidates(source, "function") if "must not be" in one.mistake]
    assert left_out
    assert not any(one.is_local for one in left_out)


MERGED = """
import triton
import triton.language as tl


@triton.jit
def merge(m, d, block_max, block_sum):
    m_new = tl.maximum(m, block_max)
    shift = tl.where(m_new == -float("inf"), 0.0, m_new)
    return m_new, d * tl.exp(m - shift) + block_sum


@triton.jit
def kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    m, d = -float("inf"), 0.0
    for start in range(0, n, BLOCK):
        x = tl.load(x_ptr + start + tl.arange(0, BLOCK))
        m, d = merge(m, d, tl.max(x, axis=0), tl.sum(tl.exp(x), axis=0))
    tl.store(out_ptr, d)
"""


def test_the_other_term_of_a_sum_is_rescaled_as_the_first_one_is():
    source = Source(MERGED)
    found = {source.with_replaced(edit.parts): edit for edit in candidates(source, "kernel")}
    right = MERGED.replace("+ block_sum", "+ ((block_sum) * tl.exp(block_max - shift))")
    assert right in found
    assert found[right].mistake == "`block_sum` is not rescaled in `d * tl.exp(m - shift) + block_sum`"
    assert found[right].rank == 1


JOINED = """
import triton
import triton.language as tl


@triton.jit
def kernel(parts_ptr, bias_ptr, out_ptr, tiles, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    each, rest = tiles // tl.num_programs(0), tiles % tl.num_programs(0)
    for tile in range({first}, each + (pid < rest)):
        lanes = tl.arange(0, BLOCK)
        parts = tl.load(parts_ptr + lanes[:, None] * BLOCK + lanes[None, :])
        bias = tl.load(bias_ptr + lanes)
        {lines}
        tl.store(out_ptr + lanes + tile, tl.where({decided}, {taken}, 0.0))
"""
PLAIN = {
    "first": "pid * each", "lines": "acc = tl.sum(parts, axis=0)",
    "decided": "acc + bias > 0", "taken": "acc + bias",
}  # fmt: skip
JOINS = {
    "a term of every part": (
        {"lines": "acc = tl.sum(parts + bias[None, :], axis=0)"},
        ("acc = tl.sum(parts + bias[None, :], axis=0)", "acc = tl.sum(parts, axis=0) + bias"),
        "`bias[None, :]` is added to every term of the sum of line 14, and so counts often",
    ),
    "a term that is added to every part before": (
        {"lines": "parts += bias[None, :]\n        acc = tl.sum(parts, axis=0)"},
        ("parts += bias[None, :]\n        acc = tl.sum(parts, axis=0)",
         "pass\n        acc = tl.sum(parts, axis=0) + bias"),
        "`bias[None, :]` is added to every term of the sum of line 15, and so counts often",
    ),
    "a value without the term that was decided by": (
        {"taken": "acc", "lines": "acc = tl.sum(parts, axis=0)\n        total = acc + bias"},
        (", acc, 0.0", ", (acc + bias), 0.0"),
        "`acc` lacks the term `bias` in `tl.where(acc + bias > 0, acc, 0.0)`",
    ),
    "a share that begins too early": (
        {},
        ("range(pid * each", "range((pid * each + tl.minimum(pid, rest))"),
        "`pid * each` leaves out that programs before this one have one more, where `pid < rest`",
    ),
    "a share that begins too late": (
        {"first": "pid * each + rest"},
        ("range(pid * each + rest", "range(pid * each + tl.minimum(pid, rest)"),
        "`pid * each + rest` goes `rest` further for every program, and not one for each program before "
        "that has one more",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", JOINS)
def test_a_term_or_a_share_is_counted_once(name):
    changed, (wrong, right), mistake = JOINS[name]
    text = JOINED.format(**{**PLAIN, **changed})
    assert text.count(wrong) == 1
    source = Source(text)
    found = {source.with_replaced(edit.parts): edit for edit in candidates(source, "kernel")}
    assert found[text.replace(wrong, right)].mistake == mistake


SHARED = """
import triton
import triton.language as tl

LOG2E = 1.4426950408889634


@triton.jit
def scaled(x_ptr, cols, n):
    x = tl.load(x_ptr + cols, mask=cols < n, other=-float("inf"))
    return x.to(tl.float32) * LOG2E


@triton.jit
def kernel(x_ptr, out_ptr, n, SPLIT: tl.constexpr, BLOCK: tl.constexpr):
    piece = tl.cdiv(n, SPLIT)
    start = tl.program_id(0) * piece
    cols = start + tl.arange(0, BLOCK)
    x = scaled(x_ptr, cols, n)
    m = tl.max(x, axis=0)
    d = tl.sum(tl.exp2(x - m), axis=0)
    lse = m + tl.log2(d)
    for k in range(0, piece, BLOCK):
        y = tl.load(x_ptr + cols + k, mask=cols < n - k, other=0.0)
        tl.store(out_ptr + cols + k, tl.exp2(y - lse), mask=cols + k < n)
"""
LOST = {
    "a scale before the maximum": (
        {"x.to(tl.float32) * LOG2E": "x.to(tl.float32)", "tl.exp2(x - m)": "tl.exp2((x - m) * LOG2E)",
         "tl.exp2(y - lse)": "tl.exp2((y - lse) * LOG2E)"},
        "`x.to(tl.float32) * LOG2E` is rounded before the maximum is subtracted, and loses digits of numbers "
        "far from 0",
    ),
    "the logarithm of a sum": (
        {"tl.exp2(y - lse)": "tl.exp2(y - (m)) / (d)"},
        "`m + tl.log2(d)` loses the digits of its logarithm beside a number far from 0",
    ),
    "a mask that goes on behind a share": (
        {"cols < n - k": "((cols < n - k) & ((cols) - (start) < (piece) - k))"},
        "`cols < n - k` goes on behind the share of `piece`, where the range of line 23 ends",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LOST)
def test_digits_and_shares_of_a_row(name):
    changes, mistake = LOST[name]
    right = SHARED
    for wrong, text in changes.items():
        assert right.count(wrong) == 1
        right = right.replace(wrong, text)
    source = Source(SHARED)
    found = {source.with_replaced(edit.parts): edit for edit in candidates(source, "kernel")}
    assert found[right].mistake == mistake


NORM = """
import triton
import triton.language as tl


@triton.jit
def part_kernel(x_ptr, sums_ptr, n, PART: tl.constexpr, BLOCK: tl.constexpr):
    part = tl.program_id(0)
    cols = part * PART + tl.arange(0, BLOCK)
    x = load(x_ptr, cols, n)
    tl.store(sums_ptr + part, tl.sum(x, axis=0))


@triton.jit
def join_kernel(x_ptr, sums_ptr, out_ptr, n, PART: tl.constexpr, BLOCK: tl.constexpr):
    part = tl.program_id(0)
    cols = part * PART + tl.arange(0, BLOCK)
    end = tl.minimum(part * PART + PART, n)
    x = load(x_ptr, cols, end)
    m = tl.maximum(tl.load(sums_ptr), tl.max(x, axis=0))
    rstd = tl.rsqrt(m)
    tl.store(out_ptr + cols, rstd * (x - m - x * end), mask=cols < end)


def function(x, sums, out, n):
    part_kernel[(4,)](x, sums, n, PART=3, BLOCK=4)
    join_kernel[(4,)](x, sums, out, n, PART=3, BLOCK=4)
"""
OTHERS = {
    "a factor of the whole sum in one term": (
        ("x - m - x * end", "x - m - (x * end * rstd)"),
        "the factor `rstd` is missing in the term `x * end` of `x - m - x * end`", False),
    "an end that another kernel has": (
        ("load(x_ptr, cols, n)", "load(x_ptr, cols, tl.minimum(part * PART + PART, n))"),
        "`n` is not the end in `load(x_ptr, cols, n)`: line 18 has `tl.minimum(part * PART + PART, n)`",
        False),
    "a maximum of one block": (
        ("tl.maximum(tl.load(sums_ptr), tl.max(x, axis=0))", "(tl.max(x, axis=0))"),
        "the maximum `tl.maximum(tl.load(sums_ptr), tl.max(x, axis=0))` is wrong, or what is made of it",
        True),
    "a maximum that is a minimum": (
        ("tl.max(x, axis=0)", "tl.min(x, axis=0)"),
        "the maximum `tl.max(x, axis=0)` is wrong, or what is made of it", True),
}  # fmt: skip


@pytest.mark.parametrize("name", OTHERS)
def test_what_another_term_or_kernel_has(name):
    (wrong, right), mistake, goes_around = OTHERS[name]
    assert NORM.count(wrong) == 1
    source = Source(NORM)
    found = {source.with_replaced(edit.parts): edit for edit in candidates(source, "function")}
    edit = found[NORM.replace(wrong, right)]
    assert (edit.mistake, edit.goes_around) == (mistake, goes_around)
