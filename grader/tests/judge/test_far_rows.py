"""Rows beyond 2^31 elements: where they lie in memory of which few pages are touched."""

import os
from itertools import pairwise

import pytest
import torch

from grader.course.spec import WRAP, Layout
from grader.judge import far_rows
from grader.judge.exchange import Exchange
from grader.judge.inputs import (
    GUARD,
    Placer,
    Rng,
    band_input,
    fill,
    first_change_outside,
    held,
    poison_output,
    put_back,
    untouched,
    whole_outside,
)
from grader.judge.run import FAR_BYTES
from grader.worker.shared_memory import Arena

SHAPES = {"rows": ((3, 257), Layout(far=True)), "columns": ((150, 3), Layout(transposed=True, far=True))}
each_shape = pytest.mark.parametrize(("shape", "layout"), SHAPES.values(), ids=SHAPES)


def first_change(arena, buffer, before):
    """What `first_change_outside` finds; the short answer is the same."""
    found = first_change_outside(arena, buffer, before)
    assert bool(whole_outside(arena, buffer, before)) == (found is None)
    return found


@pytest.fixture
def arena():
    arena = Arena.create("cpu", FAR_BYTES)
    yield arena
    assert 512 * os.fstat(arena.handle).st_blocks < 64 << 20, "more was touched than the rows"
    arena.close()


def far(shape, layout, dtype="fp16"):
    return Placer().place("x", shape, dtype, layout)


def wrapped(arena, buffer, row):
    """The memory that a kernel with offsets of 32 bits takes for the beginning of a row."""
    size = 2
    start = buffer.tensor.offset + (row * max(buffer.tensor.strides) - WRAP) * size
    return arena.bytes(start, start + size).view(torch.float16)


@each_shape
def test_what_is_written_to_far_rows_is_read_there(arena, shape, layout):
    buffer, value = far(shape, layout), torch.randn(shape).half()
    fill(arena, [buffer], {"x": value})
    assert torch.equal(arena.view(buffer.tensor), value)
    rows = [piece for piece in buffer.pieces if piece.tensor.span]
    stored = value.T if layout.transposed else value
    assert all(torch.equal(arena.view(one.tensor), row) for one, row in zip(rows, stored, strict=True))


@each_shape
def test_far_rows_of_an_output_are_untouched_until_they_are_written(arena, shape, layout):
    buffer = far(shape, layout)
    before = poison_output(arena, buffer, Rng(7, "test", "cpu"))
    assert untouched(arena, buffer, before).all()
    assert untouched(arena, buffer, before).shape == shape
    arena.view(buffer.tensor)[2, 1] = 0.5
    assert (~untouched(arena, buffer, before)).nonzero().tolist() == [[2, 1]]
    assert first_change(arena, buffer, before) is None


@each_shape
def test_an_offset_that_has_wrapped_meets_marked_memory(arena, shape, layout):
    buffer = far(shape, layout)
    band_input(arena, buffer)
    assert wrapped(arena, buffer, 2).isnan().all()
    before = poison_output(arena, buffer, Rng(7, "test", "cpu"))
    wrapped(arena, buffer, 2).fill_(1.0)
    assert first_change(arena, buffer, before) is not None


def test_a_write_behind_a_far_row_is_found(arena):
    buffer = far((3, 257), Layout(far=True))
    before = poison_output(arena, buffer, Rng(7, "test", "cpu"))
    row = buffer.pieces[1].tensor
    arena.bytes(row.offset + 2 * 257, row.offset + 2 * 258).fill_(1)
    assert first_change(arena, buffer, before) == 257


def test_memory_of_far_rows_is_put_back_as_it_was(arena):
    buffer = far((3, 257), Layout(far=True))
    band_input(arena, buffer)
    copy = held(arena, buffer)
    for piece in buffer.pieces:
        arena.bytes(piece.start, piece.stop).zero_()
    put_back(arena, buffer, copy)
    assert torch.equal(held(arena, buffer), copy)


def test_far_rows_are_exchanged_and_a_change_of_one_is_noticed(arena):
    buffer = far((3, 257), Layout(far=True))
    graded, decoys = ({"x": torch.randn(3, 257).half()} for _ in range(2))
    exchange = Exchange(arena, [buffer], graded, decoys)
    exchange.open()
    assert torch.equal(arena.view(buffer.tensor), graded["x"])
    exchange.shut()
    assert torch.equal(arena.view(buffer.tensor), decoys["x"])
    arena.view(buffer.tensor)[2, 5] = 1.0
    exchange.open()
    assert exchange.changed == ["x"]


def test_no_two_of_several_far_matrices_share_memory():
    placer = Placer()
    layouts = [Layout(far=True), Layout(), Layout(far=True), Layout(far=True)]
    placed = [placer.place("x", (3, 257), "fp16", layout) for layout in layouts]
    taken = sorted((piece.start, piece.stop) for buffer in placed for piece in buffer.pieces)
    assert all(stop <= start for (_, stop), (start, _) in pairwise(taken))
    assert taken[0][0] >= 0
    assert taken[-1][1] <= FAR_BYTES


def test_rows_that_do_not_reach_far_are_refused():
    with pytest.raises(ValueError, match="do not reach"):
        far_rows.place("x", (2, 5), "fp16", Layout(far=True), 0, GUARD)
