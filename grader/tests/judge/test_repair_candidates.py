"""Edits of a wrong file: one of them gives the right text again, and none hides a mistake by tuning."""

import ast

import pytest

from grader.judge.repair import names
from grader.judge.repair.candidates import candidates
from grader.judge.repair.source import Source, called, stored
from grader.tests.helpers.course import swap

KERNEL = """
import torch
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, w_ptr, out_ptr, n_cols, eps, stride_x, stride_out, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0)
    m = -float("inf")
    total = 0.0
    for start in range(0, n_cols, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * stride_x + offs, mask=offs < n_cols, other=0.0).to(tl.float32)
        w = tl.load(w_ptr + offs, mask=offs < n_cols, other=0.0)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        total = total * tl.exp(m - m_new) + tl.sum(x * w, axis=0)
        m = m_new
    mean = total / n_cols
    for start in range(0, n_cols, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * stride_x + offs, mask=offs < n_cols, other=0.0)
        tl.store(out_ptr + row * stride_out + offs, (x - mean) * tl.rsqrt(mean + eps), mask=offs < n_cols)


def function(x, w, eps, *, out=None):
    n_rows, n_cols = x.shape
    out = torch.empty_like(x) if out is None else out
    block = min(triton.next_power_of_2(n_cols), 1024)
    kernel[(triton.cdiv(n_rows, 1),)](x, w, out, n_cols, eps, x.stride(0), out.stride(0), BLOCK=block)
    return out
"""
MISTAKES = {
    "a comparison one too far": ("mask=offs < n_cols, other=0.0)\n        tl.store",
                                 "mask=offs <= n_cols, other=0.0)\n        tl.store"),
    "strides exchanged": ("x.stride(0), out.stride(0)", "out.stride(0), x.stride(0)"),
    "the wrong axis of a stride": ("eps, x.stride(0)", "eps, x.stride(1)"),
    "the wrong axis of the grid": ("program_id(axis=0)", "program_id(axis=1)"),
    "a store without a mask": (", mask=offs < n_cols)\n\n", ")\n\n"),
    "operands exchanged": ("(x - mean)", "(mean - x)"),
    "a wrong sign": ("mean + eps", "mean - eps"),
    "a factor missing": ("tl.sum(x * w, axis=0)", "tl.sum(x, axis=0)"),
    "a factor too many": ("tl.sum(x * w, axis=0)", "tl.sum(x * w * x, axis=0)"),
    "not rescaled": ("total * tl.exp(m - m_new) + tl", "total + tl"),
    "the new block rescaled, too": ("total * tl.exp(m - m_new) + tl.sum(x * w, axis=0)",
                                    "(total + tl.sum(x * w, axis=0)) * tl.exp(m - m_new)"),
    "an argument that is not used": ("mean + eps", "mean + 1e-5"),
    "the neighbouring function": ("tl.rsqrt(mean", "tl.sqrt(mean"),
    "minimum for maximum": ("tl.maximum(m", "tl.minimum(m"),
    "another's stride": ("row * stride_out", "row * stride_x"),
    "the width in place of the stride": ("row * stride_out", "row * n_cols"),
    "the block in place of the size": ("total / n_cols", "total / BLOCK"),
    "the last block dropped": ("triton.cdiv(n_rows, 1)", "n_rows // 1"),
    "all lanes in place of the length": ("total / n_cols", "total / (BLOCK * BLOCK)"),
    "a reduction along all axes": ("tl.sum(x * w, axis=0)", "tl.sum(x * w)"),
    "an argument that is passed twice": ("](x, w, out,", "](x, x, out,"),
    "an index without its stride": ("out_ptr + row * stride_out + offs", "out_ptr + row + offs"),
    "an address that begins again at 0": ("out_ptr + row * stride_out + offs",
                                          "out_ptr + row * stride_out + tl.arange(0, BLOCK)"),
    "two values in the wrong order": ("n_rows, n_cols = x", "n_cols, n_rows = x"),
    "a statement too early in its loop": ("        m = m_new\n    mean", "    m = m_new\n    mean"),
    "a statement in the loop that belongs behind it": ("        m = m_new\n    mean = total / n_cols\n",
                                                       "        m = m_new\n        mean = total / n_cols\n"),
}  # fmt: skip

LONG = """
import torch
import triton
import triton.language as tl

FLOOR = -float("inf")


@triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})
@triton.jit
def kernel(x_ptr, w_ptr, out_ptr, n, rows, eps, stride, EVEN: tl.constexpr, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    offs = pid * BLOCK * rows + tl.arange(0, BLOCK)
    last = tl.minimum(offs.max() + 1, n)
    x = tl.load(x_ptr + offs, mask=(offs < n) & (offs < last), other=FLOOR)
    seen = 0.0
    for start in range(0, n, BLOCK):
        seen += tl.minimum(BLOCK, (n) - start) * 1.0
    m = tl.full((BLOCK,), -float("inf"), tl.float32)
    m_new = tl.maximum(m, x)
    total = tl.sum(tl.exp(x - m_new), axis=0)
    acc = total * 2.0
    old = m
    m = m_new
    factor = tl.exp(old - m)
    rstd = tl.rsqrt(total / n + eps)
    tile = tl.dot(acc, acc)
    limited = acc + factor
    result = acc - total * rstd * rstd
    tl.store(out_ptr + offs, result + limited + tile, mask=offs < n)


@triton.jit
def blocks(x_ptr, n, BLOCK: tl.constexpr):
    block = tl.make_block_ptr(x_ptr, (n, n), (n, 1), (0, 0), (BLOCK, BLOCK), (1, 0))
    tl.store(block, tl.load(block, boundary_check=(0, 1)), boundary_check=(0, 1))


def inner(x, w, out=None, eps=1e-5):
    out = torch.empty_like(x) if out is None else out
    n, rows = x.numel(), x.shape[0]
    if x.numel() == 0 and rows == 0:
        return out
    grid_rows = triton.cdiv(n, 64)
    kernel[(grid_rows, rows)](x, w, out, n, rows, eps, x.stride(0), BLOCK=64)
    blocks[(1,)](x, n, BLOCK=16)
    return out


class Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w, eps):
        ctx.eps = eps
        ctx.save_for_backward(x, w)
        return inner(x, w, eps=eps)

    @staticmethod
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        blocks[(1,)](dy.contiguous(), 16, BLOCK=16)
        return inner(dy, w, eps=ctx.eps), None, None


def function(x, w, eps):
    return Function.apply(x, w, eps)
"""
IN_LONG = {
    "a low number in place of -inf": ('FLOOR = -float("inf")', "FLOOR = -65504.0"),
    "a maximum that begins at 0": ('tl.full((BLOCK,), -float("inf"), tl.float32)',
                                   "tl.zeros((BLOCK,), tl.float32)"),
    "a number in a heuristic": ('args["n"] % args["BLOCK"]', 'args["n"] % 16'),
    "another name in a heuristic": ('args["n"] % args["BLOCK"]', 'args["n"] % args["EVEN"]'),
    "a factor missing in a product of an address": ("pid * BLOCK * rows +", "pid * BLOCK +"),
    "a factor missing in one term of a sum": ("acc - total * rstd * rstd", "acc - total * rstd"),
    "a square missing in one term of a sum": ("acc - total * rstd * rstd", "acc - total"),
    "a factor that should be 1": ("(n) - start) * 1.0", "(n) - start) * 1.702"),
    "the maximum overwritten too early": ("    old = m\n    m = m_new\n", "    m = m_new\n    old = m\n"),
    "a value that is cut off": ("limited = acc + factor", "limited = tl.clamp(acc + factor, -1.0, 1.0)"),
    "the larger of two values": ("limited = acc + factor", "limited = tl.maximum(acc + factor, 0.0)"),
    "an axis that is not checked": ("tl.load(block, boundary_check=(0, 1))",
                                    "tl.load(block, boundary_check=(0,))"),
    "an atomic add": ("tl.store(out_ptr", "tl.atomic_add(out_ptr"),
    "a transposed product": ("tl.dot(acc, acc)", "tl.trans(tl.dot(acc, acc))"),
    "the last block counted as a whole one": ("tl.minimum(BLOCK, (n) - start) * 1.0", "BLOCK * 1.0"),
    "the end of a program's part": ("mask=(offs < n) & (offs < last)", "mask=offs < n"),
    "a bare return": ("rows == 0:\n        return out", "rows == 0:\n        return"),
    "a condition too many": ("if x.numel() == 0 and rows == 0:", "if x.numel() == 0 and rows == 0 and eps:"),
    "a number in backward": ("return inner(dy, w, eps=ctx.eps)", "return inner(dy, w, eps=1e-6)"),
    "an output that is an input": ("return inner(dy, w, eps=ctx.eps)",
                                   "return inner(dy, w, eps=ctx.eps, out=dy)"),
    "a gradient taken as contiguous by a launch": ("](dy.contiguous(), 16", "](dy, 16"),
    "a grid of another number": ("[(grid_rows, rows)]", "[(grid_rows, 8)]"),
    "the branches of a choice": ("torch.empty_like(x) if out is None else out",
                                 "out if out is None else torch.empty_like(x)"),
}  # fmt: skip


BLOCKS = """
import torch
import triton
import triton.language as tl

@triton.jit
def add(total, x):
    total += x
    return total


@triton.jit
def silu(x):
    return x / (1.0 + tl.exp(-x))


@triton.jit
def kernel(x_ptr, dy_ptr, w_ptr, out_ptr, n_cols, n, GROUP: tl.constexpr, BLOCK: tl.constexpr):
    lanes = tl.arange(0, BLOCK)
    in_group = GROUP * n
    first = tl.program_id(axis=0) // in_group * GROUP
    x_row, dy_row = x_ptr + first * n_cols, dy_ptr + first * n_cols
    m = tl.max(tl.load(x_row + lanes, mask=lanes < n_cols, other=0.0), axis=0)
    total = 0.0
    for start in range(BLOCK, n_cols, BLOCK):
        x = tl.load(x_row + start + lanes, mask=start + lanes < n_cols, other=0.0)
        m_before = m
        m = tl.maximum(m, tl.max(x, axis=0))
        total = total * tl.exp(m_before - m) + tl.sum(tl.exp(x - m), axis=0)
    dots = tl.zeros((BLOCK,), dtype=tl.float32)
    dots = add(dots, x)
    for start in range(0, n_cols, BLOCK):
        dy = tl.load(dy_row + start + lanes)
        dots += dy * tl.load(w_ptr + start + lanes)
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        acc += tl.dot(tl.load(x_ptr + start + lanes), acc)
    acc += tl.dot(lanes, lanes)
    for start in range(0, n_cols, BLOCK):
        w = tl.load(w_ptr + start + lanes)
        tl.store(out_ptr + start + lanes, silu(w) * dots + acc * total)


def function(x, dy, w, *, out):
    kernel[(triton.cdiv(x.shape[0], 4),)](x, dy, w, out, x.shape[1], 8, GROUP=4, BLOCK=64)
    return out
"""
IN_BLOCKS = {
    "a sum not rescaled, without a name for the maximum of before": (
        "        m_before = m\n        m = tl.maximum(m, tl.max(x, axis=0))\n"
        "        total = total * tl.exp(m_before - m) + tl.sum(tl.exp(x - m), axis=0)\n",
        "        m = tl.maximum(m, tl.max(x, axis=0))\n        total += tl.sum(tl.exp(x - m), axis=0)\n",
    ),
    "a first block that counts twice": ("range(BLOCK, n_cols, BLOCK)", "range(0, n_cols, BLOCK)"),
    "a vector that the sum of a loop lacks": (
        "dy * tl.load(w_ptr + start + lanes)\n    acc", "dy\n    acc"
    ),
    "what a loop has added is overwritten": ("acc += tl.dot(lanes, lanes)", "acc = tl.dot(lanes, lanes)"),
    "a factor inside of a helper's argument": ("silu(w) * dots", "silu(w * dots)"),
    "a number of groups without their size": ("// in_group * GROUP", "// in_group"),
}  # fmt: skip


def plain(text: str) -> str:
    """The syntax of a text, without `pass`, without parentheses that change nothing, and with one quote."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            body[:] = [one for one in body if not isinstance(one, ast.Pass)]
    return ast.unparse(tree)


FILES = ((KERNEL, MISTAKES), (LONG, IN_LONG), (BLOCKS, IN_BLOCKS))
ALL = [(file, *one) for file, mistakes in FILES for one in mistakes.values()]


@pytest.mark.parametrize(("file", "right", "wrong"), ALL, ids=[*MISTAKES, *IN_LONG, *IN_BLOCKS])
def test_an_edit_gives_the_right_text(file, right, wrong):
    assert right in file
    text = file.replace(right, wrong, 1)
    source = Source(text)
    mended = {plain(file)}
    tried = candidates(source, "function")
    assert any(plain_or_none(source, edit) in mended for edit in tried), f"none of {len(tried)} edits"


def test_a_helper_that_keeps_its_result_hands_it_back():
    text = swap(
        BLOCKS, "    total += x\n    return total\n", "    total += x\n", "dots = add(dots", "add(dots"
    )
    source = Source(text)
    (edit,) = (one for one in candidates(source, "function") if "does not return it" in one.mistake)
    assert edit.mistake == "`add` has a new value for its own `total`, and does not return it"
    assert plain(source.with_replaced(edit.parts)) == plain(BLOCKS)


def test_the_factor_of_a_divisor_is_the_likely_one():
    text = swap(BLOCKS, "// in_group * GROUP", "// in_group")
    ranks = {edit.mistake: edit.rank for edit in candidates(Source(text), "function")}
    assert ranks["the factor `GROUP` is missing in `tl.program_id(axis=0) // in_group`"] == 1


def test_a_name_that_nothing_reads_is_the_likely_one():
    text = swap(KERNEL, "    m = -float", "    total_new = 1.0\n    m = -float")
    ranks = {str(edit.parts): edit.rank for edit in candidates(Source(text), "function")
             if edit.mistake == "`total` is the wrong value in `total / n_cols`"}  # fmt: skip
    assert {rank for parts, rank in ranks.items() if "total_new" in parts} == {0}
    assert min(rank for parts, rank in ranks.items() if "total_new" not in parts) > 0


def test_the_inverse_of_an_exponential_has_the_terms_exchanged():
    told = {edit.mistake for edit in candidates(Source(KERNEL), "function")
            if "/" in str(edit.parts) and edit.line == line_of("total * tl.exp")}  # fmt: skip
    assert "`*` is the wrong operator in `total * tl.exp(m - m_new)`" not in told


def line_of(code: str) -> int:
    return next(at for at, one in enumerate(KERNEL.splitlines(), 1) if code in one)


JOINED = """
import triton
import triton.language as tl


@triton.jit
def join(m_a, d_a, m_b, d_b):
    m = tl.maximum(m_a, m_b)
    return m, d_a * tl.exp(m_a - m) + d_b * tl.exp(m_b - m)


@triton.jit
def kernel(x_ptr, BLOCK: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, BLOCK))
    m, d = tl.reduce((x, x), 0, join)
    tl.store(x_ptr, m + d)


def function(x):
    kernel[(1,)](x, BLOCK=64)
"""


@pytest.mark.parametrize("wrong", ["d_b * tl.exp(m_a - m)", "d_b", "d_a * tl.exp(m_b - m)"])
def test_what_a_join_makes_of_one_side_it_makes_of_the_other(wrong):
    source = Source(swap(JOINED, "d_b * tl.exp(m_b - m)", wrong))
    found = [edit for edit in candidates(source, "function") if plain_or_none(source, edit) == plain(JOINED)]
    assert any("is not made of its side as" in edit.mistake for edit in found)


def test_a_stride_in_the_place_of_an_index_is_a_wrong_value():
    told = {edit.mistake for edit in candidates(Source(KERNEL), "function") if "stride_x" in str(edit.parts)}
    assert "`start` is the wrong value in `start + tl.arange(0, BLOCK)`" in told
    assert not any(one.startswith("`start` is the wrong step") for one in told)


def plain_or_none(source: Source, edit) -> str | None:
    try:
        return plain(source.with_replaced(edit.parts))
    except SyntaxError:
        return None


def test_a_mistake_that_is_made_twice_is_mended_in_both_places():
    twice = KERNEL.replace("mask=offs < n_cols, other=0.0)\n", "mask=offs <= n_cols, other=0.0)\n")
    assert twice.count("<=") == 2
    source = Source(twice)
    found = [edit for edit in candidates(source, "function")
             if plain_or_none(source, edit) == plain(KERNEL)]  # fmt: skip
    assert found
    assert "(and so in line" in found[0].mistake


def test_no_edit_changes_only_the_size_of_a_block():
    source = Source(KERNEL)
    line = next(number for number, text in enumerate(KERNEL.split("\n"), 1) if "next_power_of_2" in text)
    tried = candidates(source, "function")
    assert tried
    assert not [edit for edit in tried if edit.line == line]


def test_most_edits_are_python():
    source = Source(KERNEL)
    tried = candidates(source, "function")
    broken = [edit for edit in tried if plain_or_none(source, edit) is None]
    assert len(broken) < 0.02 * len(tried), [edit.mistake for edit in broken[:5]]


def test_an_edit_says_its_line_and_not_what_to_write():
    source = Source(KERNEL.replace("mean + eps", "mean - eps"))
    edit = next(one for one in candidates(source, "function") if plain_or_none(source, one) == plain(KERNEL))
    assert "rsqrt" in source.text.split("\n")[edit.line - 1]
    assert "mean - eps" in edit.mistake
    assert "mean + eps" not in edit.mistake


def test_two_edits_of_one_place_are_refused():
    source = Source(KERNEL)
    one, other = [edit for edit in candidates(source, "function") if "mean + eps" in edit.mistake][:2]
    with pytest.raises(ValueError, match="same place"):
        source.with_replaced((*one.parts, *other.parts))


def test_two_sizes_that_are_exchanged_in_every_mask():
    right = """
import triton
import triton.language as tl


@triton.jit
def kernel(c_ptr, M, N, BLOCK: tl.constexpr):
    rows = tl.arange(0, BLOCK)[:, None]
    cols = tl.arange(0, BLOCK)[None, :]
    c = tl.load(c_ptr + rows * N + cols, mask=(rows < M) & (cols < N))
    tl.store(c_ptr + rows * N + cols, c, mask=(rows < M) & (cols < N))


def function(c):
    kernel[(1,)](c, c.shape[0], c.shape[1], BLOCK=16)
"""
    source = Source(right.replace("(rows < M) & (cols < N)", "(rows < N) & (cols < M)"))
    found = [one for one in candidates(source, "function") if plain_or_none(source, one) == plain(right)]
    assert found
    assert found[0].mistake == "`N` and `M` are exchanged in the comparisons of the kernel"


TUNED = """
import triton
import triton.language as tl


def config(m, n, group):
    tile = {"BLOCK_M": m, "BLOCK_N": n, "GROUP_M": group}
    return triton.Config(tile, num_warps=4)


@triton.jit
def place(pid, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    first = pid // (tl.cdiv(N, BLOCK_N) * GROUP_M) * GROUP_M
    return (first + pid % GROUP_M) * BLOCK_M, first * BLOCK_N


@triton.autotune(configs=[config(64, 32, 8)], key=["M", "N"])
@triton.jit
def kernel(c_ptr, M, N, stride, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    m, n = place(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP_M=GROUP_M)
    rows = m + tl.arange(0, BLOCK_M)[:, None]
    cols = n + tl.arange(0, BLOCK_N)[None, :]
    tl.store(c_ptr + rows * stride + cols, 0.0, mask=(rows < M) & (cols < N))


def function(c):
    kernel[(8,)](c, *c.shape, c.stride(0))
"""


def test_a_parameter_that_configs_set_is_not_exchanged_for_another_value():
    source = Source(TUNED)
    assert source.tuned == {"BLOCK_M", "BLOCK_N", "GROUP_M"}
    tried = candidates(source, "function")
    parts = [(source.between(*span), text) for edit in tried for span, text in edit.parts]
    assert len(parts) > 100
    assert [text for old, text in parts if old == "GROUP_M"] == []
    assert {text for old, text in parts if old == "BLOCK_M"} == {"BLOCK_N"}  # a common mistake
    handed = TUNED.encode().index(b"BLOCK_M, BLOCK_N, GROUP_M=")
    assert not [edit for edit in tried for (begin, _), _ in edit.parts if handed <= begin < handed + 33]


MEAN = """
import triton
import triton.language as tl


@triton.autotune([triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 128})], key=["n"])
@triton.jit
def kernel(x_ptr, out_ptr, stride, n, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + tl.program_id(0) * stride + cols, mask=cols < n, other=0.0)
    tl.store(out_ptr + tl.program_id(0), tl.sum(x, axis=0) / BLOCK)


def function(x, out):
    kernel[(8,)](x, out, x.stride(0), x.shape[1])
"""


@pytest.mark.parametrize(
    ("divisor", "mistake"),
    [
        ("BLOCK", "`tl.sum(x, axis=0) / BLOCK` divides by the lanes of a block"),
        ("(n - 1)", "`tl.sum(x, axis=0) / (n - 1)` divides by one less than the number of elements"),
    ],
)
def test_what_is_divided_by_another_number_than_that_of_the_elements_is_tried_first(divisor, mistake):
    """The mean of a block is none of a row; in an address another value would be another tile."""
    source = Source(swap(MEAN, "tl.sum(x, axis=0) / BLOCK", f"tl.sum(x, axis=0) / {divisor}"))
    tried = candidates(source, "function")
    found = [edit for edit in tried if edit.mistake == mistake]
    assert [plain(source.with_replaced(one.parts)) for one in found] == [
        plain(MEAN.replace("/ BLOCK", "/ n"))
    ]
    assert tried.index(found[0]) < len(tried) / 10


HELPED = """
from rows import load, store


@triton.jit
def kernel(x_ptr, bias_ptr, out_ptr, n, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    bias = load(bias_ptr, cols, n)
    store(out_ptr, cols, n, load(x_ptr, cols, n) * 2.0)


@triton.jit
def other_kernel(x_ptr):
    tl.store(x_ptr, 0.0)


def function(x, bias, out):
    kernel[(1,)](x, bias, out, x.shape[1], BLOCK=64)
"""


def test_what_a_function_of_another_file_stores_is_its_last_argument():
    source = Source(HELPED)
    (edit,) = [
        one for one in candidates(source, "function") if "`bias` is not added in `load(x_ptr" in one.mistake
    ]
    assert "cols, n, ((load(x_ptr, cols, n) * 2.0) + bias))" in source.with_replaced(edit.parts)
    calls = [node for node in ast.walk(source.tree) if isinstance(node, ast.Call) and called(node) == "store"]
    assert [source.text_of(stored(source, one)) for one in calls] == ["load(x_ptr, cols, n) * 2.0", "0.0"]
    own = Source(HELPED.replace("from rows import", "from triton.language import"))
    assert own.text_of(stored(own, calls[0])) == "cols"


def test_kernels_that_nothing_launches_or_calls_are_known():
    assert Source(HELPED).never_used == ["other_kernel"]
    assert Source(MEAN).never_used == []


COUNTED = """
import triton
import triton.language as tl

STEP = tl.constexpr(32)


@triton.autotune([triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 32})], key=["n"])
@triton.jit
def kernel(x_ptr, out_ptr, rows, n, count, BLOCK: tl.constexpr):
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for i in range(count):
        cols = i * BLOCK + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + cols, mask=cols < n, other=0.0)
    for at in range(0, n, STEP):
        cols = at + tl.arange(0, BLOCK)
        tl.store(out_ptr + cols, tl.sum(total, axis=0), mask=cols < n)


def function(x, out):
    kernel[(8,)](x, out, *x.shape, triton.cdiv(x.shape[1], 64))
"""


def test_a_loop_runs_over_blocks_of_the_size_that_configs_set():
    """What host code counted, or a constant, fits one of the configs."""
    found = [one for one in candidates(Source(COUNTED), "function") if len(one.parts) == 1]
    words = ("another size", "steps by")
    told = {one.mistake: one.parts[0][1] for one in found if any(part in one.mistake for part in words)}
    count = "tl.cdiv(n, BLOCK)"
    assert told == {
        f"`count` counts blocks of another size than `BLOCK`: there are `{count}`": count,
        "the loop steps by `STEP`, and takes `BLOCK` elements at a time": "BLOCK",
    }


AUTOGRAD = """
import torch


def function(x):
    return Function.apply(x)


class Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, eps):
        ctx.eps = x
        ctx.save_for_backward(x)
        return plain(x)

    @staticmethod
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        return gradient[(1,)](dy, y), None
"""


def test_what_an_autograd_function_keeps_is_looked_at_first():
    source = Source(AUTOGRAD)
    tried = candidates(source, "function")
    first = [edit for edit in tried if edit.rank == 0]
    texts = [source.with_replaced(edit.parts) for edit in tried[: len(first)]]
    assert any("ctx.eps = eps" in text for text in texts)
    assert any("save_for_backward(eps)" in text for text in texts)
    (saved,) = [text for text in texts if ":= plain(x)" in text]
    result = saved.partition("save_for_backward((")[2].partition(" ")[0]
    assert f"return {result}\n" in saved
    assert {edit.mistake for edit in first if "save" in edit.mistake} == {
        "`x` is the wrong value in `ctx.save_for_backward(x)`"
    }


def test_of_two_kinds_of_one_rank_the_one_with_fewer_edits_comes_first():
    tried = candidates(Source(LONG), "function")
    third = [edit.kind for edit in tried if edit.rank == 3]
    many = {kind: third.count(kind) for kind in third}
    assert max(many.values()) > 4 * min(many.values())
    assert third == sorted(third, key=lambda kind: many[kind])


def places_of(text, *words):
    """Where the edits stand among all, whose mistakes contain these words; each has some."""
    tried = candidates(Source(text), "function")
    found = [[at for at, edit in enumerate(tried) if one in edit.mistake] for one in words]
    assert all(found)
    return found


@pytest.mark.parametrize(("right", "wrong"), [("maximum", "minimum"), ("minimum", "maximum")])
def test_the_opposite_function_comes_before_leaving_out_one_of_its_arguments(right, wrong):
    text = KERNEL.replace("tl.maximum(m", f"tl.{wrong}(m")
    left = "the maximum `tl.maximum(m" if wrong == "maximum" else f"not belong in `tl.{wrong}(m"
    opposite, left_out = places_of(text, f"`tl.{wrong}` is the wrong function", left)
    assert len(left_out) == 2
    assert max(opposite) < min(left_out)
    edit = candidates(Source(text), "function")[opposite[0]]
    assert plain(Source(text).with_replaced(edit.parts)) == plain(text.replace(f"tl.{wrong}", f"tl.{right}"))


@pytest.mark.parametrize("names", [("stride_x", "step"), ("step", "stride_out")])
def test_of_two_strides_exchanged_names_tell_that_the_launch_is_wrong(names):
    right = KERNEL.replace("stride_x", names[0]).replace("stride_out", names[1])
    words = "in the launch the arguments `{}` and `{}` are exchanged", "are exchanged in the arithmetic"
    in_launch, in_kernel = places_of(
        right.replace("x.stride(0), out.stride(0)", "out.stride(0), x.stride(0)"),
        words[0].format("out.stride(0)", "x.stride(0)"), words[1],
    )  # fmt: skip
    assert max(in_launch) < min(in_kernel)
    in_launch, in_kernel = places_of(right, words[0].format("x.stride(0)", "out.stride(0)"), words[1])
    assert max(in_kernel) < min(in_launch)


@pytest.mark.parametrize(
    ("code", "is_local"),
    [("mean + eps", True), ("out is None", False)],
    ids=["a sign", "a condition"],
)
def test_a_condition_that_another_one_replaces_is_not_local(code, is_local):
    named = (f"`{code}` is the wrong condition", f"the sign in `{code}`")
    tried = candidates(Source(KERNEL), "function")
    found = [one for one in tried if one.mistake.startswith(named)]
    assert found
    assert {one.is_local for one in found} == {is_local}


def test_an_edit_that_leaves_out_or_changes_several_lines_is_not_local():
    tried = candidates(Source(LONG), "function")
    removed = [one for one in tried if "does not belong" in one.mistake]
    several = [one for one in tried if "(and so in line" in one.mistake]
    assert removed
    assert several
    assert not any(one.is_local for one in (*removed, *several))


BY_FLAG = """
import triton
import triton.language as tl


@triton.jit
def shifted(x):
    return x + 1.0


@triton.jit
def kernel(x_ptr, out_ptr, n, SHIFT: tl.constexpr, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n, other=0.0)
    if SHIFT:
        x = shifted(x)
    tl.store(out_ptr + offs, x, mask=offs < n)


def plain(x, *, out=None):
    kernel[(1,)](x, out, x.numel(), False, BLOCK=16)
    return out


def function(x, *, out=None):
    kernel[(1,)](x, out, x.numel(), True, BLOCK=16)
    return out
"""


def test_what_runs_under_a_condition_is_not_settled_by_another_function():
    source = Source(BY_FLAG)
    settled = {one.name for one in source.reached_from("plain")}
    assert settled == {"plain", "kernel", "shifted"}
    lines = {BY_FLAG.splitlines()[edit.line - 1].strip() for edit in candidates(source, "function", settled)}
    assert lines == {
        "return x + 1.0", "x = shifted(x)", "kernel[(1,)](x, out, x.numel(), True, BLOCK=16)",
        "return out",
    }  # fmt: skip


FILLED = """
def function(x, weight, *, out):
    scaled = torch.empty_like(weight)
    scale[(4,)](weight, scaled, x.shape[1])
    launch = on(product, x)[(4,)]
    launch(
        x,
        weight,
        out,
    )
    return out


@triton.jit
def scale(weight, scaled, n_cols):
    pass


@triton.jit
def product(x, weight, out):
    pass
"""


def edits_of_names(text):
    source = Source(text)
    return [*names.edits(source, source.functions["function"])]


def test_a_tensor_that_is_filled_and_not_used_is_passed_to_what_comes_later():
    found = [edit for edit in edits_of_names(FILLED) if "line 4 fills" in edit.mistake]
    assert [(edit.line, edit.mistake) for edit in found] == [
        (line, f"`scaled`, which line 4 fills, is not used: `{name}` is passed")
        for line, name in ((7, "x"), (8, "weight"), (9, "out"))
    ]
    used = FILLED.replace("return out", "return out + scaled")
    assert not [edit for edit in edits_of_names(used) if "fills" in edit.mistake]


def test_nothing_is_missing_in_the_largest_number_of_a_dtype():
    text = """
import triton
import triton.language as tl

LOWEST = tl.constexpr(-3.4028234663852886e38)


@triton.jit
def kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    top = -3.4028234663852886e38
    top = LOWEST
    low = -2.5
    x = tl.load(x_ptr + tl.arange(0, BLOCK))
    tl.store(out_ptr, tl.sum(tl.exp(x - tl.maximum(top, low)), axis=0))
"""
    missing = [edit.mistake for edit in candidates(Source(text), "kernel") if "is missing in" in edit.mistake]
    assert any("-2.5" in one for one in missing)
    assert not any("e38" in one or "in `LOWEST`" in one for one in missing)


PARTS = """
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    part = tl.program_id(axis=0)
    share = tl.cdiv(n, tl.num_programs(axis=0))
    first = part * share
    total = tl.zeros((BLOCK,), tl.float32)
    for turn in LOOP:
        at = INDEX
        total += tl.load(x_ptr + at, mask=at < n, other=0.0)
        total += tl.load(x_ptr + n + at, mask=at < n, other=0.0)
    tl.store(out_ptr + part, tl.sum(total, axis=0))
"""


@pytest.mark.parametrize(
    ("loop", "index", "end"),
    [
        ("range(tl.cdiv(share, BLOCK))", "first + turn * BLOCK + tl.arange(0, BLOCK)", "first + (share)"),
        ("range(0, share, BLOCK)", "first + turn + tl.arange(0, BLOCK)", "first + (share)"),
        ("range(first, first + share, BLOCK)", "turn + tl.arange(0, BLOCK)", "first + share"),
    ],
)
def test_all_masks_of_a_part_end_where_the_part_does(loop, index, end):
    source = Source(PARTS.replace("LOOP", loop).replace("INDEX", index))
    found = [one for one in candidates(source, "kernel") if "at the end of a part" in one.mistake]
    assert [len(one.parts) for one in found] == [2]
    changed = source.with_replaced(found[0].parts)
    assert changed.count(f"((at < n) & (at < ({end})))") == 2


def test_a_loop_over_a_whole_tensor_has_no_part():
    text = PARTS.replace("LOOP", "range(0, n, BLOCK)").replace("INDEX", "turn + tl.arange(0, BLOCK)")
    assert not [one for one in candidates(Source(text), "kernel") if "end of a part" in one.mistake]


THRESHOLD = """
import triton
import triton.language as tl

SLACK = 8.0


@triton.jit
def kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, BLOCK))
    top = tl.max(x, axis=0)
    moved = tl.where(top > SLACK, top, 0.0)
    tl.store(out_ptr, USED)
"""


@pytest.mark.parametrize(("used", "goes_around"), [("moved", True), ("moved * SLACK", False)])
def test_another_number_that_is_only_compared_with_may_avoid_what_is_wrong(used, goes_around):
    source = Source(THRESHOLD.replace("USED", used))
    found = [one for one in candidates(source, "kernel") if one.line == 5 and "8.0" in one.mistake]
    assert found
    assert all(one.goes_around is goes_around for one in found)


def test_a_name_whose_only_definition_is_a_cast_of_itself_ends_no_search():
    text = """
@triton.jit
def kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    m, k = place(tl.program_id(0), n)
    m = m.to(tl.int64)
    lanes = tl.arange(0, BLOCK)
    tl.store(out_ptr + m + lanes, tl.load(x_ptr + m + lanes))
"""
    assert candidates(Source(text), "kernel")


HOST = """
def launch(a, b, out):
    if out is None:
        out = torch.empty((a.shape[0], b.shape[1]), device=a.device, dtype=a.dtype)
    left, right = a, b
    if out.stride(0) < out.stride(1):
        left, right = b.T, a.T
    if b.stride(0) == 1:
        b = b.contiguous()
    kernel[(1,)](left, right, out, BLOCK=64)
    return out


@triton.jit
def kernel(a_ptr, b_ptr, out_ptr, BLOCK: tl.constexpr):
    lanes = tl.arange(0, BLOCK)
    tl.store(out_ptr + lanes, tl.load(a_ptr + lanes) + tl.load(b_ptr + lanes))
"""


def test_an_edit_of_a_way_that_host_code_chooses_may_go_around_what_is_wrong():
    edits = [one for one in candidates(Source(HOST), "launch") if len(one.parts) == 1]
    around = {one.line for one in edits if "out.stride(" in one.mistake and one.goes_around}
    assert 6 in around
    assert not [
        one for one in edits if one.line == 6 and "takes the wrong axis" in one.kind and not one.goes_around
    ]
    assert [one for one in edits if one.line == 7 and "does not belong" in one.kind and one.goes_around]
    assert not [one for one in edits if one.line == 4 and one.goes_around]
    assert [
        one
        for one in edits
        if one.mistake == "`b.stride(0) == 1` is the wrong condition for a contiguous copy"
    ]


NESTED = """
@triton.jit
def kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    lanes = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + lanes, mask=lanes < n)
    for part in range(2):
        for start in range(0, n, BLOCK):
            tl.store(out_ptr + part * n + start + lanes, x, mask=start + lanes < n)


def function(x, out):
    kernel[(1,)](x, out, x.numel(), BLOCK=64)
"""


def test_what_two_loops_in_each_other_use_is_loaded_at_the_block_of_the_inner_one():
    """Else one edit would replace one place twice, and no edit of the file would be tried."""
    source = Source(NESTED)
    (edit,) = [one for one in candidates(source, "function") if "loads its first block only" in one.mistake]
    assert [text for _, text in edit.parts] == ["tl.load(x_ptr + (start + lanes), mask=(start + lanes) < n)"]


def test_of_a_tensor_with_four_axes_the_last_one_is_tried():
    text = """
def function(q):
    return q.size(2) ** -0.5 * q.shape[0]
"""
    source = Source(text)
    texts = {source.with_replaced(one.parts) for one in candidates(source, "function")}
    assert any("q.size(3)" in one for one in texts)
    assert not any("q.shape[3]" in one for one in texts)


def test_a_function_that_joins_tuples_is_tried_with_the_order_of_its_caller():
    text = """
@triton.jit
def merge(m_a, m_b, d_a, d_b):
    m = tl.maximum(m_a, m_b)
    return m, d_a * tl.exp(m_a - m) + d_b * tl.exp(m_b - m)


@triton.jit
def kernel(x_ptr, n, BLOCK: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, BLOCK))
    m, d = tl.reduce((x, tl.full((BLOCK,), 1.0, tl.float32)), 0, merge)
    m, d = merge(m, x, d, n)
    tl.store(x_ptr, m + d)


def function(x):
    kernel[(1,)](x, x.numel(), BLOCK=64)
"""
    source = Source(text)
    (found,) = [one for one in candidates(source, "function") if "takes the two sides in turn" in one.mistake]
    changed = source.with_replaced(found.parts)
    assert "def merge(m_a, d_a, m_b, d_b):" in changed
    assert "m, d = merge(m, d, x, n)" in changed
    assert found.line == 3


@pytest.mark.parametrize(
    ("written", "name"), [("1.4426", "log2(e)"), ("1.4462950408889634", "log2(e)"), ("0.693", "ln(2)")]
)
def test_a_number_of_a_formula_is_tried_with_all_of_its_digits(written, name):
    text = f"""
FACTOR = tl.constexpr({written})


@triton.jit
def kernel(x_ptr, BLOCK: tl.constexpr):
    at = x_ptr + tl.arange(0, BLOCK)
    tl.store(at, tl.exp2(tl.load(at) * FACTOR))


def function(x):
    kernel[(1,)](x, BLOCK=64)
"""
    found = [one for one in candidates(Source(text), "function") if "to all digits" in one.mistake]
    assert [one.mistake for one in found] == [f"{written} is not {name} to all digits"]
    assert found[0].rank == 0


def test_a_number_that_has_all_digits_of_fp32_is_not_taken_for_another_one():
    text = "FACTOR = 1.44269504\n\n\ndef function(x):\n    return x * FACTOR\n"
    assert not any("to all digits" in one.mistake for one in candidates(Source(text), "function"))


ONE_OF_EACH = """
INVERSE = tl.constexpr(0.6931)


@triton.jit
def kernel(x_ptr, out_ptr, n, tiles, BLOCK: tl.constexpr):
    tile = tl.program_id(0)
    tile = tiles - tile
    near = tile * BLOCK + tl.arange(0, BLOCK)
    far = near + BLOCK
    exists = far < n
    x = tl.load(x_ptr + near, mask=exists, other=0.0)
    top = tl.max(x, axis=0)
    shifted = x - x[None, :]
    row, col = tl.swizzle2d(tile, tile, n, tiles, BLOCK)
    tl.store(out_ptr + near, tl.exp2(shifted * INVERSE), mask=near < n)


def function(x, out):
    n = x.numel()
    if n > 512:
        kernel[(1,)](x, out, n, 4, BLOCK=64)
"""


@pytest.mark.parametrize(
    ("mistake", "old", "new"),
    [
        ("the factor `INVERSE` is the inverse of the right one", "shifted * INVERSE",
         "((shifted) / (INVERSE))"),
        ("`tiles - tile` is one too many", "tiles - tile", "(tiles - tile - 1)"),
        ("compares `far`, and its address has `near`", "mask=exists", "mask=((near < n))"),
        ("`x[None, :]` is the wrong value", "x - x[None, :]", "x - top"),
        ("the arguments `n` and `tiles` are exchanged", "n, tiles, BLOCK)", "tiles, n, BLOCK)"),
    ],
)  # fmt: skip
def test_an_edit_is_tried_for_each_of_these_mistakes(mistake, old, new):
    source = Source(ONE_OF_EACH)
    found = [one for one in candidates(source, "function") if mistake in one.mistake]
    assert swap(ONE_OF_EACH, old, new) in {source.with_replaced(one.parts) for one in found}


def test_a_condition_of_a_launch_has_its_own_words_where_it_is_shown_to_be_wrong():
    found = [one for one in candidates(Source(ONE_OF_EACH), "function") if one.line == 21]
    (edit,) = [one for one in found if one.parts[0][1] == "(n) >= (512)"]
    assert edit.goes_around
    assert edit.detail == "the comparison `n > 512` is wrong where both sides are equal"


def test_the_index_of_a_loop_times_a_stride_may_leave_out_later_turns():
    loop = """
@triton.jit
def kernel(x_ptr, n, stride, BLOCK: tl.constexpr):
    lanes = tl.arange(0, BLOCK)
    row = x_ptr + tl.program_id(0) * stride
    for start in range(0, n, BLOCK):
        tl.store(row + start + lanes, 0.0, mask=start + lanes < n)


def function(x):
    kernel[(1,)](x, 60, x.stride(0), BLOCK=64)
"""
    found = [
        one for one in candidates(Source(loop), "function") if "not multiplied by a stride" in one.mistake
    ]
    of_the_loop = [one for one in found if one.mistake.startswith("`start`")]
    assert of_the_loop
    assert all(one.goes_around for one in of_the_loop)


WHOLE_BLOCKS = """
@triton.heuristics({"EVEN": lambda args: args["n"] % 32 == 0})
@triton.jit
def kernel(x_ptr, out_ptr, n, rest, EVEN: tl.constexpr, WHOLE: tl.constexpr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    m = -float("inf")
    d = 0.0
    for start in range(0, n, BLOCK):
        m, d = fold(m, d, tl.load(x_ptr + start + offs))
    last = tl.load(x_ptr + n + offs, mask=offs < rest, other=-float("inf"))
    top = tl.maximum(m, tl.max(last, axis=0))
    total = d + tl.sum(tl.exp(last - top), axis=0)
    tl.store(out_ptr + offs, total, mask=offs < n)


def function(x, out):
    n = x.numel()
    kernel[(triton.cdiv(BLOCK, n),)](x, out, n, n, WHOLE=n % 16 == 0, BLOCK=BLOCK)


BLOCK = 64
"""


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("% 32 == 0", '% args["BLOCK"] == 0', "`32` is the wrong number in the heuristic"),
        ("% 16 == 0", "% 64 == 0", "asks for multiples of 16, and a whole block has more"),
        ("total = d +", "total = (d * tl.exp(m - top)) +", "`d` is not rescaled in"),
        ("% 16 == 0", "% BLOCK == 0", "asks for multiples of 16, and a whole block has more"),
        ("cdiv(BLOCK, n)", "cdiv(n, BLOCK)", "the arguments `BLOCK` and `n` are exchanged"),
    ],
)
def test_an_edit_is_tried_for_conditions_and_sums_of_blocks(old, new, words):
    source = Source(WHOLE_BLOCKS)
    found = [one for one in candidates(source, "function") if words in one.mistake + one.detail]
    assert swap(WHOLE_BLOCKS, old, new) in {source.with_replaced(one.parts) for one in found}
    line = WHOLE_BLOCKS[: WHOLE_BLOCKS.index(old)].count("\n") + 1
    assert {one.line for one in found} == {line}


def test_arguments_that_a_launch_passes_by_their_own_names_are_exchanged_late():
    text = """
@triton.jit
def kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    add(x_ptr, y_ptr, n)


def function(x, y):
    kernel[(1,)](x, y, x.numel(), BLOCK=64)


@triton.jit
def add(to, of, n):
    tl.store(to + n, tl.load(of + n))
"""
    found = {
        one.line: one.rank
        for one in candidates(Source(text), "function")
        if "are exchanged" in one.mistake and "arguments" in one.mistake
    }
    assert found[4] < found[8] == 3


AGAIN = """
@triton.jit
def kernel(x_ptr, out_ptr, n, tiles, GROUP: tl.constexpr, BLOCK: tl.constexpr):
    first = tl.program_id(0) * GROUP
    height = tl.minimum(tiles, GROUP)
    at = tl.arange(0, BLOCK)
    turned = at * height + first
    acc = tl.load(x_ptr + at)
    for step in range(tl.cdiv(n, BLOCK)):
        acc += tl.load(x_ptr + step * BLOCK + at)
    tl.store(out_ptr + turned, acc, mask=first + at < tiles)


def function(x, out):
    kernel[(1,)](x, out, x.numel(), 7, GROUP=4, BLOCK=64)
"""


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("range(tl.cdiv(n, BLOCK))", "range(1, tl.cdiv(n, BLOCK))", "again"),
        ("tl.minimum(tiles, GROUP)", "tl.minimum(tiles - first, GROUP)", "and not what is left"),
        ("out_ptr + turned", "out_ptr + height", "`turned`, which line 7 sets to `at * height + first`, is"),
    ],
)
def test_an_edit_is_tried_for_what_is_done_twice_or_is_left(old, new, words):
    source = Source(AGAIN)
    found = [one for one in candidates(source, "function") if words in one.mistake]
    assert swap(AGAIN, old, new) in {source.with_replaced(one.parts) for one in found}


def test_nothing_that_is_compared_is_taken_for_a_stride():
    edits = candidates(Source(KERNEL), "function")
    compared = [
        one for one in edits if "offs < n_cols" in one.mistake and one.parts[0][1].startswith("stride")
    ]
    assert compared == []


def test_of_a_remainder_that_is_compared_no_whole_block_is_made():
    source = Source(WHOLE_BLOCKS)
    assert not any("where that divides" in one.mistake for one in candidates(source, "function"))
    used = Source(WHOLE_BLOCKS.replace("mask=offs < rest", "mask=offs < n % BLOCK"))
    assert any("where that divides" in one.mistake for one in candidates(used, "function"))


def test_a_maximum_that_does_not_rise_may_hide_a_mistake():
    edits = candidates(Source(KERNEL), "function")
    least = [one for one in edits if one.parts[0][1] == "tl.min" and "tl.max(" in one.mistake]
    assert least
    assert all(one.mistake.endswith("is wrong, or what is made of it") for one in least)
    assert all(one.goes_around for one in least)


def test_a_tensor_with_the_layout_of_another_is_made_contiguous():
    source = Source(KERNEL)
    (edit,) = [one for one in candidates(source, "function") if "has the layout of `x`" in one.mistake]
    assert "torch.empty_like(x, memory_format=torch.contiguous_format)" in source.with_replaced(edit.parts)


def test_an_edit_of_a_condition_that_host_code_returns_may_go_around_what_is_wrong():
    text = WHOLE_BLOCKS.replace("WHOLE=n % 16 == 0", "WHOLE=is_whole(n)")
    text += "\n\ndef is_whole(n):\n    return n % 16 == 0\n"
    found = [one for one in candidates(Source(text), "function") if "n % 16" in one.mistake]
    assert found
    assert all(one.goes_around for one in found)
    assert "asks for multiples of 16, and a whole block has more" in " ".join(one.detail for one in found)


@pytest.mark.parametrize("code", ["tl.num_programs(0) - tl.program_id(0)", "n - tl.program_id(0)"])
def test_the_last_of_some_programs_has_one_number_less(code):
    source = Source(
        KERNEL.replace("row = tl.program_id(axis=0)", f"row = {code}").replace("n - tl", "n_cols - tl")
    )
    found = [one for one in candidates(source, "function") if "is one too many" in one.mistake]
    assert [one.line for one in found if "program_id" in one.mistake] == [9]


def test_a_heuristic_asks_for_multiples_of_what_a_program_has_and_divides_what_it_divides():
    text = WHOLE_BLOCKS.replace("% 32 == 0", '% args["BLOCK"] == 0').replace("WHOLE: tl", "STEPS: tl")
    text = text.replace("WHOLE=n % 16 == 0", "STEPS=4")
    source = Source(text)
    found = [one for one in candidates(source, "function") if "in the heuristic" in one.mistake + one.detail]
    changed = {source.with_replaced(one.parts) for one in found}
    assert any('% (args["BLOCK"] * args["STEPS"]) == 0' in one for one in changed)
    assert all('args["n"] %' in one for one in changed)


ONE_ROW = """
def function(gate, up, *, out=None):
    rows, cols = gate.shape
    {line}
    kernel[(rows,)](gate, up, out, rows, cols)


@triton.jit
def kernel(gate, up, out, rows, cols):
    tl.store(out, tl.load(gate) * tl.load(up) + rows + cols)
"""


@pytest.mark.parametrize(
    ("line", "condition", "asked"),
    [
        ("if gate.is_contiguous() and up.is_contiguous(): rows, cols = 1, rows * cols",
         "gate.is_contiguous() and up.is_contiguous()", {"out": "out.is_contiguous()"}),
        ("whole = gate.stride(0) == cols", "gate.stride(0) == cols",
         {"up": "up.stride(0) == cols", "out": "out.stride(0) == cols"}),
        ("if gate.is_contiguous() or up.is_contiguous(): rows, cols = 1, rows * cols", "", {}),
        ("if gate.numel() == 0: return out", "", {}),
    ],
)  # fmt: skip
def test_a_condition_on_the_layout_of_some_tensors_asks_the_same_of_another(line, condition, asked):
    source = Source(ONE_ROW.replace("{line}", line))
    found = [one for one in candidates(source, "function") if "asks nothing of the layout" in one.mistake]
    assert {one.mistake: [text for _, text in one.parts] for one in found} == {
        f"`{condition}` asks nothing of the layout of `{name}`": [f"(({condition}) and {more})"]
        for name, more in asked.items()
    }
    assert not any(one.goes_around for one in found)
