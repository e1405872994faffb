"""Edits of one term, of a comparison of two blocks, of joined sums and of block pointers."""

import pytest

from grader.judge.repair.candidates import candidates
from grader.judge.repair.source import Source
from grader.tests.judge.test_repair_candidates import plain, plain_or_none

FILE = """
import torch
import triton
import triton.language as tl

EPS: tl.constexpr = 1e-6


@triton.jit
def both(a, b):
    return a + b


@triton.jit
def norm_kernel(x_ptr, out_ptr, n_cols, root, BLOCK: tl.constexpr):
    lanes = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + lanes, mask=lanes < n_cols, other=0.0).to(tl.float32)
    squares = tl.reduce((x * x), 0, both)
    deviation = tl.sqrt(squares + EPS * n_cols)
    r = root / deviation
    tl.store(out_ptr + lanes, x * r, mask=lanes < n_cols)


@triton.jit
def scores_kernel(
    q_ptr, k_ptr, out_ptr, length, stride_q, stride_k, DIM: tl.constexpr, ROWS: tl.constexpr,
    KEYS: tl.constexpr,
):
    begin = tl.program_id(0) * ROWS
    rows = tl.arange(0, ROWS)
    keys = tl.arange(0, KEYS)
    dims = tl.arange(0, DIM)
    q = tl.load(q_ptr + (begin + rows)[:, None] * stride_q + dims[None, :])
    k_block = tl.make_block_ptr(k_ptr, (DIM, length), (1, stride_k), (0, 0), (DIM, KEYS), (0, 1))
    total = tl.zeros((ROWS, KEYS), dtype=tl.float32)
    for start in range(0, length, KEYS):
        scores = tl.dot(q, tl.load(k_block, boundary_check=(0, 1)))
        total += tl.where((rows[:, None] + begin) >= (keys[None, :] + start), scores, 0.0)
        k_block = tl.advance(k_block, (0, KEYS))
    tl.store(out_ptr + rows[:, None] * KEYS + keys[None, :], total)


def function(x, q, k, out, scores):
    norm_kernel[(1,)](x, out, x.numel(), x.numel() ** 0.5, BLOCK=1024)
    scores_kernel[(4,)](q, k, scores, k.shape[0], q.stride(0), k.stride(0), DIM=16, ROWS=16, KEYS=16)
"""
WRONG = {
    "a size is no factor of one term": [("EPS * n_cols", "EPS")],
    "eps beside the root, which has a name": [
        ("squares + EPS * n_cols)", "squares)"), ("root / deviation", "root / (deviation + EPS * n_cols)"),
    ],
    "lanes of two blocks are compared": [
        ("(rows[:, None] + begin) >= (keys[None, :] + start)", "rows[:, None] >= keys[None, :]")
    ],
    "the place of a block is added to a block pointer": [("(k_block, (0, KEYS))", "(k_block, (0, start))")],
    "partial sums are squared again": [("(x * x), 0, both", "x, 0, both"), ("a + b", "a * a + b * b")],
}  # fmt: skip


@pytest.mark.parametrize("mistake", WRONG)
def test_an_edit_gives_the_right_text(mistake):
    text = FILE
    for right, wrong in WRONG[mistake]:
        assert text.count(right) == 1, right
        text = text.replace(right, wrong)
    source = Source(text)
    tried = candidates(source, "function")
    assert plain(FILE) in {plain_or_none(source, edit) for edit in tried}, f"none of {len(tried)} edits"


def test_nothing_is_computed_with_a_block_pointer_and_no_docstring_is_moved():
    text = FILE.replace("    begin = tl.pro", '    """Scores of one block of rows."""\n    begin = tl.pro')
    source = Source(text)
    tried = candidates(source, "function")
    assert len(tried) > 100
    assert not [one for one in tried if "Scores of one block" in one.mistake]
    around = [one.mistake for one in tried if "tl.make_block_ptr" in one.mistake]
    assert not [words for words in around if "is missing" in words or "divided" in words], around


SUMS = """
import torch
import triton
import triton.language as tl


@triton.jit
def meet(m_a, d_a, m_b, d_b):
    scale = tl.exp(-tl.abs(m_a - m_b))
    return tl.maximum(m_a, m_b), tl.where(m_a > m_b, d_a + d_b * scale, d_b + d_a * scale)


@triton.jit
def kernel(x_ptr, weight_ptr, out_ptr, n_cols, BLOCK: tl.constexpr):
    lanes = tl.arange(0, BLOCK)
    means = tl.zeros((BLOCK,), dtype=tl.float32)
    squares = tl.zeros((BLOCK,), dtype=tl.float32)
    shift = 0.0
    count = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        inside = cols < n_cols
        x = tl.load(x_ptr + cols, mask=inside, other=0.0)
        row = tl.load(weight_ptr + cols, mask=inside, other=0.0)
        count += 1.0
        delta = x - means
        means = means + delta / count
        squares += delta * (x - means)
        shift += tl.sum(row, axis=0)
        row = row * x
        squares += row
        rest = tl.where(x >= 0.0, row, row * shift)
        tl.store(out_ptr + cols, rest, mask=inside)
    m, d = tl.reduce((means, squares), 0, meet)
    tl.store(out_ptr, m + d)


def function(x, weight, out):
    kernel[(1,)](x, weight, out, x.numel(), BLOCK=64)
"""
WRONG_SUMS = {
    "the sums are compared in place of the maxima": ("tl.where(m_a > m_b", "tl.where(d_a > d_b"),
    "a difference from the mean of before is squared": ("delta * (x - means)", "delta * delta"),
    "a name is changed before it is summed": (
        "shift += tl.sum(row, axis=0)\n        row = row * x",
        "row = row * x\n        shift += tl.sum(row, axis=0)",
    ),
    "a factor of one choice": ("row * shift)\n        tl.store", "row)\n        tl.store"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", WRONG_SUMS)
def test_an_edit_of_sums_gives_the_right_text(mistake):
    right, wrong = WRONG_SUMS[mistake]
    assert SUMS.count(right) == 1
    source = Source(SUMS.replace(right, wrong))
    tried = candidates(source, "function")
    found = [one for one in tried if plain_or_none(source, one) == plain(SUMS)]
    assert found, f"none of {len(tried)} edits"
    assert min(one.rank for one in found) <= (4 if "factor" in mistake else 1)
