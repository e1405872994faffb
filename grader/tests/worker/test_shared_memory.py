"""Lent memory on a CPU: one view of it for judge and worker, in whole large pages."""

import os
import warnings

import pytest
import torch

from grader.course.spec import Layout
from grader.worker import shared_memory
from grader.worker.shared_memory import PAGE, TORCH_DTYPES, Arena, Tensor


@pytest.fixture
def arena():
    arena = Arena.create("cpu", PAGE)
    yield arena
    arena.close()


def tensor(shape, layout=Layout(), dtype="fp32", offset=512):  # noqa: B008, because a Layout never changes
    return Tensor(offset, shape, layout.strides(shape), dtype)


LAYOUTS = {
    "plain": Layout(),
    "padded": Layout(pad=3),
    "transposed": Layout(transposed=True),
    "both": Layout(True, 3),
    "every second column": Layout(step=2),
    "all three": Layout(True, 3, step=2),
}


def test_the_judge_keeps_its_views_and_a_worker_gets_new_ones():
    """What a worker hands to a file may be changed there: resized, or given other memory."""
    arena, lent = Arena.create("cpu", PAGE), tensor((5, 7), Layout(pad=2))
    assert arena.view(lent) is arena.view(lent)
    assert arena.bytes(0, 8) is arena.bytes(0, 8)
    opened = Arena.open("cpu", arena.size, arena.handle)
    opened.view(lent).resize_(0)
    assert opened.view(lent).shape == (5, 7)


def test_the_judge_keeps_no_more_than_so_many_views(monkeypatch):
    monkeypatch.setattr(shared_memory, "MOST_VIEWS", 3)
    arena = Arena.create("cpu", PAGE)
    views = [arena.bytes(0, 1 + k) for k in range(8)]
    assert [one.numel() for one in views] == list(range(1, 9))
    assert arena.bytes(0, 8) is views[7]
    assert arena.bytes(0, 1) is not views[0]


@pytest.mark.parametrize("dtype", TORCH_DTYPES)
@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_view_holds_the_elements_that_as_strided_finds_in_the_same_bytes(arena, layout, dtype):
    plain = torch.arange(4096).to(TORCH_DTYPES[dtype])
    lent = tensor((29, 11), layout, dtype)
    size = TORCH_DTYPES[dtype].itemsize
    arena.bytes(0, 4096 * size).view(TORCH_DTYPES[dtype]).copy_(plain)
    view = arena.view(lent)
    assert view.dtype == TORCH_DTYPES[dtype]
    assert torch.equal(view, plain.as_strided((29, 11), layout.strides((29, 11)), 512 // size))


def test_write_through_a_view_lands_at_the_offset_and_nowhere_else(arena):
    lent = tensor((2, 3), Layout(pad=1), "fp16", offset=256)
    arena.bytes(0, PAGE).zero_()
    arena.view(lent).fill_(1.0)
    touched = arena.bytes(0, PAGE).view(torch.float16).nonzero().flatten().tolist()
    assert touched == [128, 129, 130, 132, 133, 134]


def test_two_processes_see_the_same_memory(arena):
    lent = tensor((5, 7), Layout(pad=2))
    arena.view(lent).fill_(3.0)
    with warnings.catch_warnings():
        # Newer Pythons warn of forks beside threads; this child only copies bytes and leaves.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        saw = 1
        try:
            view = Arena.open("cpu", arena.size, arena.handle).view(lent)
            saw = int(view[4, 6].item() != 3.0)
            view[4, 6] = 5.0
        finally:
            os._exit(saw)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert arena.view(lent)[4, 6] == 5.0
    assert int((arena.view(lent) == 3.0).sum()) == 34


@pytest.mark.parametrize(
    ("asked", "given"),
    [(1, PAGE), (PAGE - 1, PAGE), (PAGE, PAGE), (PAGE + 1, 2 * PAGE), (5 * PAGE, 5 * PAGE)],
)
def test_size_is_rounded_up_to_whole_large_pages(asked, given):
    arena = Arena.create("cpu", asked)
    try:
        assert arena.size == given
        assert os.fstat(arena.handle).st_size == given
        assert arena.bytes(0, arena.size).numel() == given
    finally:
        arena.close()


@pytest.mark.parametrize("shape", [(0,), (0, 5), (5, 0)], ids=str)
@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_empty_tensor_spans_nothing_and_keeps_its_shape(arena, shape, layout):
    lent = tensor(shape, layout, "fp16")
    assert lent.span == 0
    assert (tuple(arena.view(lent).shape), arena.view(lent).dtype) == (shape, torch.float16)


def test_span_counts_gaps_between_rows_but_none_behind_the_last():
    assert tensor((29, 11)).span == 29 * 11
    assert tensor((29, 11), Layout(pad=3)).span == 28 * 14 + 11
    assert tensor((29, 11), Layout(True, 3)).span == 10 * 32 + 29
    assert tensor((1,)).span == 1


def test_closed_arena_gives_its_descriptor_back():
    arena = Arena.create("cpu", 1)
    arena.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(arena.handle)
