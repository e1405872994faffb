"""Statements that run under a condition, or in a loop with a condition, or outside of them."""

import pytest

from grader.judge.repair import blocks, calls, ingredients, statements
from grader.judge.repair.candidates import candidates
from grader.judge.repair.source import Source
from grader.tests.helpers.course import swap
from grader.tests.judge.test_repair_candidates import plain, plain_or_none

FILE = """
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, out_ptr, n, SHIFT: tl.constexpr, BLOCK: tl.constexpr):
    lanes = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    left = n
    while left > 0:
        total += tl.load(x_ptr + lanes, mask=lanes < left, other=0.0)
        x_ptr += BLOCK
        left -= BLOCK
    if SHIFT:
        total = total + 1.0
        total = tl.maximum(total, 0.0)
    total = total * 2.0
    tl.store(out_ptr + lanes, total)
"""
UNDER = "        total = tl.maximum(total, 0.0)\n"
MISTAKES = {
    "behind a condition": (UNDER, UNDER[4:], "and must run only where it holds"),
    "under a condition": (
        "    total = total * 2.0\n",
        "        total = total * 2.0\n",
        "and must run always",
    ),
    "behind a loop": ("        left -= BLOCK\n", "    left -= BLOCK\n", "and must be in it"),
}


@pytest.mark.parametrize(("right", "wrong", "words"), MISTAKES.values(), ids=MISTAKES)
def test_an_edit_moves_it_where_it_belongs(right, wrong, words):
    source = Source(swap(FILE, right, wrong))
    edits = [edit for edit in candidates(source, "kernel") if words in edit.mistake]
    assert plain(FILE) in [plain_or_none(source, edit) for edit in edits]


def test_what_is_bound_anew_in_an_iteration_keeps_nothing_of_the_one_before():
    text = swap(
        FILE,
        "        total += tl.load",
        "        part = tl.zeros((BLOCK,), tl.float32)\n        part += tl.load",
    )
    mistakes = [edit.mistake for edit in candidates(Source(text), "kernel")]
    assert any(one.startswith("what `part` was before does not belong in `part += ") for one in mistakes)
    assert not any("keeps what earlier iterations have added to `part`" in one for one in mistakes)
    assert any(
        "keeps what earlier iterations have added to `left`" in one or "x_ptr" in one for one in mistakes
    )


def test_a_sum_that_begins_at_0_is_no_product():
    edits = candidates(Source(FILE), "kernel")
    assert not [one for one in edits if any(text.startswith("total *= ") for _, text in one.parts)]
    product = swap(
        FILE, "total = tl.zeros((BLOCK,), tl.float32)", "total = tl.full((BLOCK,), 1.0, tl.float32)"
    )
    edits = candidates(Source(product), "kernel")
    assert [one for one in edits if any(text.startswith("total *= ") for _, text in one.parts)]


LOOPS = """
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, out_ptr, n_rows, n, BLOCK: tl.constexpr):
    total = 0.0
    row = tl.program_id(0)
    while row < n_rows:
        row += tl.num_programs(0)
        for at in range(0, n, BLOCK):
            total += tl.sum(tl.load(x_ptr + row * n + at + tl.arange(0, BLOCK)), 0)
        for at in range(0, n, BLOCK):
            tl.store(out_ptr + row * n + at + tl.arange(0, BLOCK), total)
"""
ANEW = (
    "    while row < n_rows:\n",
    "    while row < n_rows:\n        total = 0.0\n",
    "`total = 0.0` is set once, before the loop of line 10, and must be set in each iteration",
)
SECOND_LOOP = """
@triton.jit
def kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    lanes = tl.arange(0, BLOCK)
    most = tl.full((BLOCK,), 0.0, tl.float32)
    for at in range(0, n, BLOCK):
        most = tl.maximum(most, tl.load(x_ptr + lanes))
        x_ptr += BLOCK
    for at in range(0, n, BLOCK):
        tl.store(out_ptr + at + lanes, tl.load(x_ptr + lanes) - most)
        x_ptr += BLOCK
"""


@pytest.mark.parametrize(
    ("text", "old", "new", "mistake"),
    [
        (LOOPS, *ANEW),
        (
            LOOPS,
            "        row += tl.num_programs(0)\n",
            "        pass\n",
            "`row += tl.num_programs(0)` comes too early in the loop: it belongs at its end",
        ),
        (
            SECOND_LOOP,
            "    for at in range(0, n, BLOCK):\n        most",
            "    first_x_ptr = x_ptr\n    for at in range(0, n, BLOCK):\n        most",
            "`x_ptr` goes on where the loop of line 6 has left it, and must begin anew",
        ),
    ],
)
def test_what_a_loop_changes_begins_anew_or_changes_at_its_end(text, old, new, mistake):
    source = Source(text)
    (edit,) = [one for one in candidates(source, "kernel") if one.mistake == mistake]
    changed = source.with_replaced(edit.parts)
    assert text.count(old) == 1
    assert new in changed
    if mistake.endswith("at its end"):
        assert changed.endswith("        row += tl.num_programs(0)\n")
    if mistake.endswith("anew"):
        assert "    x_ptr = first_x_ptr\n    for at in range(0, n, BLOCK):\n        tl.store" in changed


def test_what_a_later_loop_only_reads_does_not_begin_anew():
    said = {one.mistake for one in candidates(Source(SECOND_LOOP), "kernel")}
    assert "`x_ptr` goes on where the loop of line 6 has left it, and must begin anew" in said
    assert not any(one.startswith("`most` goes on") for one in said)


FINISHED = """
@triton.jit
def kernel(x_ptr, out_ptr, steps, BLOCK: tl.constexpr):
    lanes = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    most = tl.zeros((BLOCK,), tl.float32)
    for tile in range(0, steps):
        for at in range(0, steps):
            total += tl.load(x_ptr + at + lanes)
            most = tl.maximum(most, total)
        if tile % 2 == 1:
            tl.store(out_ptr + tile + lanes, total + most)
"""


def test_what_inner_loops_go_on_with_is_set_anew_at_once_or_where_a_tile_is_finished():
    source = Source(FINISHED)
    said = {one.mistake: source.with_replaced(one.parts) for one in candidates(source, "kernel")}
    both = "`total` and `most` are set once, before the loop of line 7, and must be set in each iteration"
    assert said[both].count("tl.zeros") == 4
    code = "`total = tl.zeros((BLOCK,), tl.float32)`"
    behind = said[f"{code} is set once, before the loop of line 7, and must be set anew behind line 12"]
    assert behind.rstrip().endswith("            total = tl.zeros((BLOCK,), tl.float32)")


def test_a_sum_that_is_complete_behind_its_loop_is_not_set_in_each_iteration():
    text = """
@triton.jit
def kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    total = tl.load(x_ptr + tl.arange(0, BLOCK))
    for at in range(0, n):
        total += tl.load(x_ptr + at + tl.arange(0, BLOCK))
    tl.store(out_ptr + tl.arange(0, BLOCK), total)
"""
    edits = candidates(Source(text), "kernel")
    assert edits
    assert not any("in each iteration" in one.mistake for one in edits)


NAMED = """
import triton
import triton.language as tl


def split(n_rows):
    chunk = triton.cdiv(n_rows, 64)
    programs = triton.cdiv(n_rows, chunk)
    return {}


@triton.jit
def kernel(x_ptr, out_ptr, chunk, BLOCK: tl.constexpr):
    lanes = tl.program_id(0) * chunk + tl.arange(0, BLOCK)
    tl.store(out_ptr + lanes, tl.load(x_ptr + lanes))


def run(x, out):
    chunk, programs = split(len(x))
    kernel[(programs,)](x, out, chunk, BLOCK=64)
"""


@pytest.mark.parametrize(("returned", "found"), [("chunk, programs", False), ("programs, chunk", True)])
def test_values_are_taken_in_order_where_their_names_are_those_that_the_function_returns(returned, found):
    source = Source(NAMED.format(returned))
    mistakes = {edit.mistake for edit in candidates(source, "run")}
    assert any(mistake.endswith("takes values in the wrong order") for mistake in mistakes) is found


BEHIND = """
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, y_ptr, w_ptr, out_ptr, n, share, BLOCK: tl.constexpr):
    first = tl.program_id(0) * share
    total = tl.zeros((BLOCK,), tl.float32)
    now = tl.load(x_ptr + first)
    for start in range(first, first + share, BLOCK):
        at = start + tl.arange(0, BLOCK)
        inside = at < n
        product = tl.load(x_ptr + at, mask=inside) * tl.load(w_ptr + at, mask=inside)
        product = product.to(tl.float16).to(tl.float32)
        tl.store(y_ptr + at, product, mask=inside)
        y = tl.load(y_ptr + at, mask=inside)
        total += product * y
    both = tl.reshape(tl.join(total, total), (2 * BLOCK,))
    tl.store(out_ptr + tl.arange(0, 2 * BLOCK), both)
"""


@pytest.mark.parametrize(
    ("old", "new", "mistake"),
    [
        (
            "inside = at < n", "inside = ((at < n) & ((at) < (first + share)))",
            "`at < n` goes on behind `first + share`, where the range of line 11 ends",
        ),
        (
            "product * y\n    both",
            "product * y\n    total += product * y\n    both",
            "`total += product * y` is not run once more behind the loop of line 11",
        ),
        (
            "total += product", "total += (tl.load(x_ptr + at, mask=inside))",
            "`product` has the factor `tl.load(w_ptr + at, mask=inside)`, which does not belong in "
            "`product * y`",
        ),
        (
            "tl.join(total, total)", "tl.permute(tl.join(total, total), (0, 2, 1))",
            "`tl.join(total, total)` puts elements in pairs, and does not put one block behind the other",
        ),
    ],
)  # fmt: skip
def test_an_edit_of_what_a_loop_a_definition_or_a_join_leaves_out(old, new, mistake):
    source = Source(BEHIND)
    kernel = source.functions["kernel"]
    found = {
        source.with_replaced(edit.parts): edit.mistake
        for module in (blocks, statements, ingredients, calls)
        for edit in module.edits(source, kernel)
    }
    assert BEHIND.count(old) == 1
    assert found[BEHIND.replace(old, new)] == mistake


MASK_OF_THE_FIRST = """
@triton.jit
def kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    for _ in range(4):
        keep = offs < n
        tl.store(out_ptr + offs, tl.load(x_ptr + offs, mask=keep), mask=keep)
        offs += BLOCK


def function(x, out):
    kernel[(1,)](x, out, x.numel(), BLOCK=64)
"""


def test_what_is_made_of_what_a_loop_changes_is_made_in_each_iteration():
    moved = swap(MASK_OF_THE_FIRST, "        keep = offs < n\n", "")
    moved = swap(moved, "    for _ in", "    keep = offs < n\n    for _ in")
    source = Source(moved)
    told = "`keep = offs < n` is set once, before the loop of line 6, and must be set in each iteration"
    (edit,) = [one for one in candidates(source, "function") if one.mistake == told]
    assert "for _ in range(4):\n        keep = offs < n\n" in plain(source.with_replaced(edit.parts))


HOST = """
@triton.jit
def kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    tl.store(out_ptr + offs, tl.load(x_ptr + offs, mask=offs < n), mask=offs < n)


def destination(x, out):
    if out is not None and out.shape == x.shape:
        return out
    return torch.empty_like(x)


def function(x, out=None):
    out = destination(x, out)
    flat = out.view(-1)
    kernel[(1,)](x, flat, x.numel(), BLOCK=64)
    return out
"""


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("out.shape == x.shape", "out.shape is x.shape"),  # in a function that launches nothing
        ("out.view(-1)", "out.view(-1).to(torch.float32)"),
    ],
)
def test_host_code_that_compares_by_identity_or_stores_in_a_copy_is_mended(right, wrong):
    source = Source(swap(HOST, right, wrong))
    assert plain(HOST) in [plain_or_none(source, edit) for edit in candidates(source, "function")]
