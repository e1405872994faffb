"""Edits of names that belong together: of one step, of one sum, of one tensor, of a lane and its row."""

import pytest

from grader.judge.repair.candidates import candidates
from grader.judge.repair.source import Source

FILE = """
import torch
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, y_ptr, out_ptr, n_rows, stride_x, stride_y, BLOCK: tl.constexpr):
    lanes = tl.arange(0, BLOCK)
    step = tl.num_programs(0)
    x_row = x_ptr + tl.program_id(0) * stride_x
    y_row = y_ptr + tl.program_id(0) * stride_y
    even = tl.zeros((BLOCK, BLOCK), tl.float32)
    odd = tl.zeros((BLOCK, BLOCK), tl.float32)
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    a = tl.load(x_row + lanes[:, None] + lanes[None, :])
    b = tl.load(y_row + lanes[:, None] + lanes[None, :])
    for _ in range(0, n_rows, step):
        x_row += stride_x
        y_row += step * stride_y
        a_next = tl.load(x_row + lanes[:, None] + lanes[None, :])
        b_next = tl.load(y_row + lanes[:, None] + lanes[None, :])
        even = tl.dot(a_next, b_next, even)
        odd = tl.dot(b, a, even)
        total = odd + tl.trans(a)
        a = a_next
        b = b_next
    peak = tl.sum(total, axis=0)
    top = tl.max(peak, axis=0)
    both = tl.reshape(tl.join(peak, peak), (2 * BLOCK,))
    tl.store(out_ptr + lanes[:, None] * stride_y + lanes[None, :], even * (peak - top)[:, None])


def function(x, y, out):
    kernel[(1,)](x, y, out, x.shape[0], *x.stride(), BLOCK=16)
    return out
"""

EDITS = {
    "`a_next` and `b_next` are the wrong values": "even = tl.dot(a, b, even)",
    "`x_row` is not updated as `y_row` is": "x_row += (step * stride_x)",
    "`even` is not the sum that": "odd = tl.dot(b, a, odd)",
    "`odd` is not the sum that": "total = total + tl.trans(a)",
    "puts elements in pairs, and does not": "tl.permute(tl.join(peak, peak), (1, 0)), (2",
    "has its rows where": "lanes[None, :], tl.trans(even * (peak - top)[:, None]))",
    "passes both strides of `x`": "x.shape[0], x.stride(0), out.stride(0), BLOCK=16",
}


def texts(words):
    """The file with each edit whose mistake has these words."""
    source = Source(FILE)
    return [source.with_replaced(one.parts) for one in candidates(source, "function") if words in one.mistake]


@pytest.mark.parametrize("words", EDITS)
def test_an_edit_puts_what_belongs_together(words):
    found = texts(words)
    assert any(EDITS[words] in text for text in found), len(found)


def test_names_of_which_one_step_has_no_other_are_left():
    text = FILE.replace("b_next", "later").replace("a_next", "soon")
    edits = candidates(Source(text), "function")
    assert not [one for one in edits if "are the wrong values" in one.mistake]


def test_what_a_row_has_is_likely_to_be_meant_where_a_lane_has_its_own():
    source = Source(FILE.replace("(peak - top)", "(total - peak)"))
    words = "`peak` is the wrong value in `total - peak`"
    edits = [one for one in candidates(source, "function") if words in one.mistake]
    ranks = {text: one.rank for one in edits for _, text in one.parts}
    assert ranks["top"] == 1 < ranks["even"]
