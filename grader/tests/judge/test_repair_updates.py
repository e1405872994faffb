"""Edits of what loops start with and leave behind, and of what stands elsewhere: each mends its mistake."""

import pytest

from grader.judge.repair import axes, calls, functions, ingredients, masks, operators, statements, updates
from grader.judge.repair.candidates import candidates
from grader.judge.repair.source import Source
from grader.tests.helpers.course import swap

FILE = """
import torch
import triton
import triton.language as tl


@triton.jit
def put(out_ptr, block, columns, n):
    tl.store(out_ptr + columns, block, mask=columns < n)


@triton.jit
def kernel(x_ptr, out_ptr, n, p, scale, BLOCK: tl.constexpr):
    lanes = tl.arange(0, BLOCK)
    ptrs = x_ptr + lanes
    total = tl.zeros((BLOCK,), tl.float32)
    top = -float("inf")
    for start in range(0, n, BLOCK):
        x = tl.load(ptrs, mask=start + lanes < n, other=0.0)
        total += x
        new = tl.maximum(top, tl.max(x, axis=0))
        top = new
        ptrs += BLOCK
    if n > 0:
        x = tl.load(x_ptr + lanes, mask=lanes < n, other=0.0)
        new = tl.maximum(top, tl.max(x, axis=0))
        top = new
    ptrs = x_ptr + lanes
    for start in range(0, n, BLOCK):
        x = tl.load(ptrs, mask=start + lanes < n, other=0.0)
        put(out_ptr, x * p, start + lanes, n)
        put(out_ptr, x * scale + total + top, start + BLOCK + lanes, n)
        ptrs += BLOCK


def scale_of(p):
    return 1.0 / (1.0 - p)


def function(x, p, *, out=None):
    out = torch.empty_like(x) if out is None else out
    kernel[(1,)](x, out, x.numel(), p, scale_of(p), BLOCK=1024)
    return out
"""
SECOND = """    for start in range(0, n, BLOCK):
        x = tl.load(ptrs, mask=start + lanes < n, other=0.0)
        put"""
LAST = """(out_ptr, x * p, start + lanes, n)
        put(out_ptr, x * scale + total + top, start + BLOCK + lanes, n)
        ptrs += BLOCK
"""
MISTAKES = {
    "a sum that starts with its first term": (
        updates,
        "total = tl.zeros((BLOCK,), tl.float32)",
        "total = tl.load(ptrs, mask=lanes < n, other=0.0)",
        "total = tl.zeros_like(tl.load(ptrs, mask=lanes < n, other=0.0))",
        "`total` starts with `tl.load(ptrs, mask=lanes < n, other=0.0)`, which the loop adds again",
    ),
    "pointers that a loop leaves moved": (
        updates,
        f"    ptrs = x_ptr + lanes\n{SECOND}",
        SECOND,
        f"    ptrs = ptrs_before\n{SECOND}",
        "`ptrs` is not set back behind the loop of line 18, which moves it",
    ),
    "a statement that follows another elsewhere": (
        updates,
        "        new = tl.maximum(top, tl.max(x, axis=0))\n        top = new\n    ptrs",
        "        new = tl.maximum(top, tl.max(x, axis=0))\n    ptrs",
        "        new = tl.maximum(top, tl.max(x, axis=0))\n        top = new\n    ptrs",
        "`top = new` is missing behind line 26: line 22 has it",
    ),
    "a sum that another call passes": (
        ingredients,
        "x * p, start + lanes, n)",
        "x * p, lanes, n)",
        "x * p, (start + BLOCK + lanes), n)",
        "takes `lanes`, and not `start + BLOCK + lanes`, as line 32 does",
    ),
    "arguments of unlike kinds in a launch": (
        calls,
        "p, scale_of(p), BLOCK",
        "scale_of(p), p, BLOCK",
        "p, scale_of(p), BLOCK",
        "in the launch the arguments `scale_of(p)` and `p` are exchanged",
    ),
    "updates that come too early": (
        statements,
        f"{SECOND}{LAST}",
        "    for _ in range(n):\n        ptrs += BLOCK\n        lanes += BLOCK\n"
        "        put(out_ptr, tl.load(ptrs, mask=lanes < n), lanes, n)\n",
        "pass\n        put(out_ptr, tl.load(ptrs, mask=lanes < n), lanes, n)\n        ptrs += BLOCK\n"
        "        lanes += BLOCK",
        "come too early in the loop: they belong at its end",
    ),
    "what a loop leaves from its last iteration": (
        updates,
        f"{SECOND}(out_ptr, x * p",
        "    for start in range(0, n, BLOCK):\n        put(out_ptr, x * p",
        "    for start in range(0, n, BLOCK):\n        x = tl.load(ptrs, mask=start + lanes < n, other=0.0)\n"
        "        put(out_ptr, x * p",
        "`x` is what the loop of line 18 has left from its last iteration",
    ),
    "lanes that are not summed up": (
        updates,
        "x * scale + total + top",
        "x * scale + total",
        "x * scale + tl.sum(total, axis=0)",
        "the lanes of `total` are not summed up behind the loop that adds to them",
    ),
    "a sum that is rounded before it is subtracted": (
        ingredients,
        "x * scale + total + top",
        "x - (top + tl.log(total))",
        "((x) - (top) - (tl.log(total)))",
        "`top + tl.log(total)` is rounded before it is subtracted",
    ),
    "a division that one of two branches lacks": (
        ingredients,
        "x * scale + total + top",
        "tl.where(x < 0.0, x * p, x / (1.0 + p))",
        "tl.where(x < 0.0, ((x * p) / (1.0 + p)), x / (1.0 + p))",
        "`x * p` is not divided by `1.0 + p`, as what is chosen beside it",
    ),
    "a factor of one term": (
        operators,
        "x * scale + total + top",
        "scale * x - total / n",
        "(((x) - (total / n)) * (scale))",
        "`scale` multiplies only one term of",
    ),
    "the last block where a size is a multiple of it": (
        operators,
        "x * scale + total + top",
        "x * (n // BLOCK)",
        "(((n) - 1) // (BLOCK))",
        "`n // BLOCK` is one too many where `BLOCK` divides `n`",
    ),
    "what is left where a size is a multiple of a block": (
        operators,
        "x * scale + total + top",
        "x * (n % BLOCK)",
        "(((n) - 1) % (BLOCK) + 1)",
        "`n % BLOCK` is 0, and not `BLOCK`, where that divides `n`",
    ),
    "a condition that another mask has": (
        masks,
        "        new = tl.maximum(top, tl.max(x, axis=0))\n        top = new\n        ptrs",
        "        x = tl.load(ptrs, mask=lanes < p, other=0.0)\n"
        "        new = tl.maximum(top, tl.max(x, axis=0))\n        top = new\n        ptrs",
        "mask=((lanes < p) & (start + lanes < n))",
        "lacks `start + lanes < n`, which that of line",
    ),
    "a mask of a part of the address": (
        masks,
        "        new = tl.maximum(top, tl.max(x, axis=0))\n        top = new\n        ptrs",
        "        x = tl.load(x_ptr + lanes + BLOCK, mask=lanes < n, other=0.0)\n"
        "        new = tl.maximum(top, tl.max(x, axis=0))\n        top = new\n        ptrs",
        "mask=((lanes < n) & ((lanes + BLOCK) < (n)))",
        "is masked by `lanes`, and not by `lanes + BLOCK`",
    ),
    "limits of a value without any": (
        functions,
        "x * p, start + lanes, n)",
        "tl.minimum(tl.maximum(x * p, -scale), scale), start + lanes, n)",
        "put(out_ptr, (x * p), start + lanes, n)",
        "limits `x * p`, which has no limits",
    ),
    "blocks that take turns": (
        axes,
        "new = tl.maximum(top, tl.max(x, axis=0))\n        top = new\n        ptrs",
        "new = tl.max(tl.interleave(x, x), axis=0)\n        top = new\n        ptrs",
        "tl.reshape(tl.permute(tl.join(x, x), (1, 0)), (2 * (x).shape[0],))",
        "`tl.interleave(x, x)` takes an element of each in turn, and not one block behind the other",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_an_edit_gives_the_right_text(name):
    module, right, wrong, mended, words = MISTAKES[name]
    source = Source(swap(FILE, right, wrong))
    found = [
        source.with_replaced(edit.parts)
        for function in source.reached_from("function")
        for edit in module.edits(source, function)
        if words in edit.mistake
    ]
    assert any(mended in text for text in found), found


def test_what_a_loop_only_moves_on_is_not_set_back():
    source = Source(FILE)
    assert not [
        edit
        for function in source.reached_from("function")
        for edit in updates.edits(source, function)
        if "not set back" in edit.mistake
    ]


def test_an_operator_that_would_leave_a_number_without_effect_is_not_tried():
    source = Source(swap(FILE, "x * p,", "x * (1.0 + p),"))
    mistakes = [
        edit.mistake
        for function in source.reached_from("function")
        for edit in operators.edits(source, function)
    ]
    assert "the term `1.0` does not belong in `1.0 + p`" in mistakes
    assert "`+` is the wrong operator in `1.0 + p`" not in mistakes


def test_every_edit_gives_a_file_that_python_reads():
    source = Source(swap(FILE, "mask=lanes < n", "mask=(lanes < n)[:, None] & (lanes < n)[None, :]"))
    tried = candidates(source, "function")
    assert len(tried) > 100
    for edit in tried:
        compile(source.with_replaced(edit.parts), edit.mistake, "exec")


TUNED = """
import torch
import triton
import triton.language as tl

CONFIGS = [triton.Config({"GROUP": group}) for group in (4, 8)]


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def kernel(x_ptr, out_ptr, n, GROUP: tl.constexpr):
    tile = tl.program_id(0)
    first = tile // GROUP * GROUP
    height = min(n - first, GROUP)
    down = tile % GROUP % height
    rounded = (tl.load(x_ptr + first) * down).to(out_ptr.dtype.element_ty)
    single = rounded.to(tl.float32)
    tl.store(out_ptr + first + GROUP - 1 - down, single * down)


def function(x, *, out=None):
    out = torch.empty_like(x) if out is None else out
    kernel[(x.numel(),)](x, out, x.numel())
    return out
"""


def test_what_is_left_of_a_tuned_size_may_be_meant_in_its_place():
    source = Source(TUNED)
    tried = candidates(source, "function")
    (at,) = [
        place
        for place, edit in enumerate(tried)
        if "+ first + height - 1" in source.with_replaced(edit.parts) and len(edit.parts) == 1
    ]
    assert at < len(tried) / 2
    assert tried[at].rank == 1


def test_a_factor_is_followed_through_conversions():
    source = Source(TUNED)
    texts = [source.with_replaced(edit.parts) for edit in candidates(source, "function")]
    assert any("(tl.load(x_ptr + first)) * down)" in text for text in texts)


def test_a_reciprocal_of_a_number_of_math_is_tried():
    source = Source(swap(FILE, "p, scale_of(p), BLOCK", "p, math.log(2.0), BLOCK"))
    texts = [source.with_replaced(edit.parts) for edit in candidates(source, "function")]
    assert any("(1.0 / math.log(2.0))" in text for text in texts)


def test_a_mask_that_is_made_of_itself_is_followed_once():
    helper = (
        "def put(out_ptr, block, columns, n):\n    tl.store(out_ptr + columns, block, mask=columns < n)\n"
    )
    own = (
        "def put(out_ptr, block, columns, n, mask):\n    mask = mask & (columns < n)\n"
        "    tl.store(out_ptr + columns, block, mask=mask)\n"
    )
    assert candidates(Source(swap(FILE, helper, own)), "function")
