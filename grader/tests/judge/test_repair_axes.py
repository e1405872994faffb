"""Edits of axes, of the blocks of a loop and of terms: one of them gives what the right file does."""

import functools

import pytest

from grader.judge.repair.candidates import candidates
from grader.judge.repair.source import Source
from grader.tests.judge.test_repair_candidates import plain, plain_or_none

FILE = """
import torch
import triton
import triton.language as tl
from rows import load


@triton.jit
def kernel(
    x_ptr, w_ptr, b_ptr, out_ptr, n_rows, n_cols, stride_x, stride_out, eps, ROWS: tl.constexpr,
    COLS: tl.constexpr,
):
    share = tl.cdiv(n_rows, tl.num_programs(0))
    begin = tl.program_id(0) * share
    last = begin + share
    lanes = tl.arange(0, COLS)
    bias = tl.load(b_ptr + begin)
    weight = tl.load(w_ptr + lanes, mask=lanes < n_cols)
    flat = tl.load(x_ptr + lanes)
    turned = tl.trans(tl.reshape(flat, (COLS, ROWS)))
    four = tl.join(tl.join(turned, flat), tl.join(weight, bias))
    for first in range(begin, last, ROWS):
        rows = first + tl.arange(0, ROWS)[:, None]
        tile = tl.load(x_ptr + rows * stride_x + lanes[None, :], mask=rows < n_rows, other=0.0)
        squares = tl.sum(tile * tile, axis=0) / n_cols
        scale = tl.rsqrt(squares + eps)
        scale = scale[None, :]
        tl.store(out_ptr + rows, tile * scale, mask=(rows > begin) & lanes[None, :] < n_cols)
    m = -float("inf")
    d = 0.0
    shift = 0.0
    for start in range(0, n_cols, COLS):
        x = load(x_ptr + begin * stride_x, lanes, n_cols)
        high = tl.maximum(m, tl.max(x, axis=0))
        d = d * tl.exp(m - high) + tl.sum(tl.exp(x - high), axis=0)
        m = high
        shift += tl.sum(x, axis=0) + bias
        tl.store(out_ptr + lanes, tl.where(x > 0, x + bias, 0.0) * weight)
    if n_cols > COLS:
        d += tl.sum(tl.exp(x - high), axis=0)
    at = begin + tl.arange(0, 16)
    for _ in range(2):
        at += 16
        y = tl.load(x_ptr + at)
        tl.store(b_ptr + at, y)
    for block in range(tl.cdiv(n_cols, COLS)):
        y = tl.load(x_ptr + lanes, mask=lanes < n_cols - block)
    total = d - m + bias
    mean = bias * d
    y = total * mean
    result = x * scale + shift
    other = m + scale
    variance = x * (x - mean)
    tl.store(out_ptr + begin, mean, mask=mean < n_cols & begin < 3)


def again(x):
    return x


def function(x, weight, bias, out, eps=1e-5):
    n_rows, n_cols = x.shape
    y = again(out)
    sums = x.new_empty((2, n_rows))
    kernel[(4,)](
        x, weight, bias, y, n_rows, n_cols, x.stride(0), out.stride(0), eps, ROWS=4, COLS=64,
    )
    loads[(2,)](sums, y)
    stores[(2,)](x, sums)


@triton.jit
def loads(x_ptr, out_ptr):
    tl.store(out_ptr, tl.load(x_ptr))


@triton.jit
def stores(x_ptr, out_ptr):
    tl.store(out_ptr, tl.load(x_ptr))
"""
STORE = "        tl.store(b_ptr + at, y)\n"
RIGHT = {
    "a sum with what it is broadcast to": [
        ("tile * tile, axis=0", "tile * tile, axis=1"), ("scale[None, :]", "scale[:, None]")
    ],
    "elements in the order of the memory": [
        ("tl.trans(tl.reshape(flat, (COLS, ROWS)))", "tl.reshape(flat, (ROWS, COLS))")
    ],
    "blocks that nested calls join": [
        ("(turned, flat), tl.join(weight, bias)", "(turned, weight), tl.join(flat, bias)")
    ],
    "comparisons that are joined": [
        ("(rows > begin) & lanes[None, :] < n_cols", "(rows > begin) & (lanes[None, :] < n_cols)")
    ],
    "comparisons without parentheses": [
        ("mask=mean < n_cols & begin < 3", "mask=(mean < n_cols) & (begin < 3)")
    ],
    "the end of a share": [("mask=rows < n_rows", "mask=(rows < n_rows) & (rows < last)")],
    "the columns of each block": [
        ("lanes, n_cols)\n        high", "start + lanes, n_cols)\n        high"),
        ("out_ptr + lanes", "out_ptr + (start + lanes)"),
    ],
    "what is loaded once": [
        ("0.0) * weight)", "0.0) * tl.load(w_ptr + (start + lanes), mask=(start + lanes) < n_cols))")
    ],
    "another value past the end": [
        ("lanes, n_cols)\n        high", "lanes, n_cols, other=-float('inf'))\n        high")
    ],
    "a term of each iteration": [
        ("tl.sum(x, axis=0) + bias", "tl.sum(x, axis=0)"),
        ("0.0) * weight)\n", "0.0) * weight)\n    shift += bias\n"),
    ],
    "a condition on the sum": [("x > 0, x", "x + bias > 0, x")],
    "a sum that is rescaled elsewhere": [
        ("        d += tl.sum(tl.exp(x - high), axis=0)",
         "        d = d * tl.exp(m - high) + tl.sum(tl.exp(x - high), axis=0)"),
    ],
    "a store before the next block": [(STORE, ""), ("        at += 16\n", f"{STORE}        at += 16\n")],
    "a term behind a scale": [("d - m + bias", "d - m"), ("total * mean", "total * mean + bias")],
    "a mean": [("bias * d\n", "bias * d / n_cols\n")],
    "a factor as elsewhere": [("m + scale", "m + scale * x")],
    "a square": [("x * (x - mean)", "(x - mean) * (x - mean)")],
    "a number of blocks": [("n_cols - block)", "n_cols - (block * COLS))")],
    "a tensor for sums": [("x.new_empty((2, n_rows))", "x.new_empty((2, n_rows), dtype=torch.float32)")],
    "a launch that comes too late": [
        (
            "    loads[(2,)](sums, y)\n    stores[(2,)](x, sums)",
            "    stores[(2,)](x, sums)\n    loads[(2,)](sums, y)",
        )
    ],
    "a call too many": [("again(out)", "out")],
}  # fmt: skip


@functools.cache
def edited():
    """Every text that an edit of FILE gives."""
    source = Source(FILE)
    return {plain_or_none(source, edit) for edit in candidates(source, "function")}


@pytest.mark.parametrize("mistake", RIGHT)
def test_an_edit_gives_the_right_text(mistake):
    right = FILE
    for wrong, changed in RIGHT[mistake]:
        assert right.count(wrong) == 1, wrong
        right = right.replace(wrong, changed)
    assert plain(right) in edited()


def test_a_reduction_that_drops_its_axis_keeps_it():
    text = (
        "import triton\nimport triton.language as tl\n\n\n@triton.jit\ndef kernel(p_ptr, N: tl.constexpr):\n"
    )
    text += "    p = tl.load(p_ptr + tl.arange(0, N)[:, None])\n    d = tl.zeros((N, 1), tl.float32)\n"
    text += (
        "    d += tl.sum(p, axis=1)\n    tl.store(p_ptr, d)\n\n\ndef function(p):\n    kernel[(1,)](p, N=4)\n"
    )
    source = Source(text)
    (edit,) = (one for one in candidates(source, "function") if "drops the axis" in one.mistake)
    assert "d += tl.sum(p, axis=1, keep_dims=True)" in source.with_replaced(edit.parts)
