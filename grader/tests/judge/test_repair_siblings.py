"""Edits that make a statement like one near it."""

import pytest

from grader.judge.repair import siblings
from grader.judge.repair.candidates import candidates
from grader.judge.repair.source import Source

FILE = """
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    lanes = tl.arange(0, BLOCK)
    step = tl.num_programs(0) * BLOCK
    for start in range(tl.program_id(0) * BLOCK, n, step):
        tl.store(out_ptr + lanes, tl.load(x_ptr + lanes) + tl.load(y_ptr + lanes), mask=start + lanes < n)
        x_ptr += step
        y_ptr += BLOCK
        out_ptr += step


def finish(sums, out):
    pass


def function(x, dweight, dbias):
    sums = x.new_empty(2, 4)
    kernel[(1,)](x, x, sums, 4, BLOCK=4)
    finish(sums[0], dbias)
    finish(sums[1], dweight)
    return dweight, dbias
"""


@pytest.mark.parametrize(
    ("old", "new", "mistake"),
    [
        ("y_ptr += BLOCK", "y_ptr += step", "`BLOCK` in `y_ptr += BLOCK` is not as in line 12"),
        (
            "finish(sums[0], dbias)\n    finish(sums[1], dweight)",
            "finish(sums[0], dweight)\n    finish(sums[1], dbias)",
            "`dbias` and `dweight` of line 25 are exchanged",
        ),
    ],
)
def test_an_edit_takes_what_the_other_statement_has(old, new, mistake):
    source = Source(FILE)
    assert FILE.count(old) == 1
    edits = {source.with_replaced(edit.parts): edit for edit in candidates(source, "function")}
    assert edits[FILE.replace(old, new)].mistake == mistake


def test_statements_of_another_form_are_no_pattern():
    text = FILE.replace("y_ptr += BLOCK", "y_ptr = tl.multiple_of(y_ptr + BLOCK, 4)")
    edits = candidates(Source(text), "function")
    assert edits
    assert not any(" is not as in line " in one.mistake and "multiple_of" in one.mistake for one in edits)


TWO_SUMS = """
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    even = tl.zeros((BLOCK,), tl.float32)
    odd = tl.zeros((BLOCK,), tl.float32)
    for _ in range(0, n, 2 * BLOCK):
        x = tl.load(x_ptr + at, mask=at < n)
        even = tl.fma(x, x, even)
        at += BLOCK
        x = tl.load(x_ptr + at, mask=at < n)
        odd = tl.fma(x, x, even)
        at += BLOCK
    tl.store(y_ptr, tl.sum(even + odd, axis=0))
"""


def test_of_two_updates_by_the_same_text_one_has_the_name_of_the_other():
    source = Source(TWO_SUMS)
    found = [
        edit for edit in siblings.edits(source, source.functions["kernel"]) if "belongs in" in edit.mistake
    ]
    right = TWO_SUMS.replace("odd = tl.fma(x, x, even)", "odd = tl.fma(x, x, odd)")
    assert right in [source.with_replaced(edit.parts) for edit in found]
    assert "`even` belongs in line 13, and not in `odd = tl.fma(x, x, even)`" in [
        one.mistake for one in found
    ]


LIKE = """
@triton.jit
def kernel(x_ptr, mean, out_ptr, n, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    squares, products = 0.0, 0.0
    for start in range(0, n, BLOCK):
        d = tl.load(x_ptr + start + cols) - mean
        squares += tl.sum(d * d, axis=0)
        products += tl.sum(d * {}, axis=0)
    tl.store(out_ptr, squares)
    tl.store(out_ptr + 1, products)


def function(x, out):
    kernel[(1,)](x, 1.0, out, x.numel(), BLOCK=64)
"""


def test_a_name_that_the_other_statement_has_is_told():
    said = [edit.mistake for edit in candidates(Source(LIKE.format("tl.load(x_ptr + cols)")), "function")]
    code = "`tl.load(x_ptr + cols)` in `products += tl.sum(d * tl.load(x_ptr + cols), axis=0)`"
    assert f"{code} stands where line 8 has `d`" in said
    assert not any("`squares, products`" in one and "`cols`" in one for one in said)  # both are assigned to


def test_what_the_other_statement_has_more_is_told():
    source = Source("squares = a * a\nproducts = (a - mean) * a\n")
    one, other = source.tree.body
    edit = siblings._as_in(source, one, one.value.left, other, other.value.left)
    assert edit.mistake == "`a` in `squares = a * a` lacks `- mean`, which line 2 has"


COPIED = """
@triton.jit
def merge(m_a, d_a, m_b, d_b):
    m = tl.maximum(m_a, m_b)
    scale_a = tl.exp(m_a - m)
    scale_b = tl.exp(m_a - m)
    return m, d_a * scale_a + d_b * scale_b
"""


def test_a_copied_value_gets_the_names_that_its_target_asks_for():
    source = Source(COPIED)
    (found,) = [
        one for one in siblings.edits(source, source.functions["merge"]) if "same value as" in one.mistake
    ]
    assert found.line == 6
    assert "scale_b = tl.exp(m_b - m)" in source.with_replaced(found.parts)


LOOPS = """
@triton.jit
def kernel(x_ptr, n, BLOCK: tl.constexpr):
    for start in range(0, n, BLOCK):
        tl.load(x_ptr + start)
    for start in range(0, n, 2 * BLOCK):
        tl.store(x_ptr + start, 0.0)
    for start in range(BLOCK, n, 4 * BLOCK):
        tl.store(x_ptr + start, 1.0)
"""


def test_two_loops_over_one_range_may_have_one_step():
    source = Source(LOOPS)
    found = [
        one
        for one in siblings.edits(source, source.functions["kernel"])
        if "the loop steps by" in one.mistake
    ]
    changed = [source.with_replaced(one.parts) for one in found]
    assert [one.line for one in found] == [4, 6]
    assert changed[0].count("2 * BLOCK") == 2
    assert changed[1].count("0, n, BLOCK") == 2
