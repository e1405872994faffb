"""What separates wrong cases from right ones, in a sentence."""

import pytest

from grader.course.spec import Case, Layout
from grader.judge.contrast import contrast


def case(dtype="fp32", layouts=None, allocates=False, **params):
    return Case(params, dtype, layouts or {}, allocates=allocates)


SETS = {
    "every case is wrong": ([case(n=3)], []),
    "wrong only where cols is 1025 or more; it is right up to 1024": (
        [case(rows=2, cols=1025), case(rows=9, cols=4000)], [case(rows=3, cols=1024), case(rows=8, cols=7)],
    ),
    "wrong only where n is 1 or less; it is right from 2": ([case(n=1)], [case(n=2), case(n=5)]),
    "wrong only where values is masked": (
        [case(cols=5, values="masked")], [case(cols=5, values="huge"), case(cols=5)],
    ),
    "wrong only where the rows of `x` are padded": (
        [case(n=5, layouts={"x": Layout(pad=3)})], [case(n=5), case(n=5, layouts={"y": Layout(pad=3)})],
    ),
    "wrong only where the rows of `x` and `out` are padded": (
        [case(n=5, layouts={"x": Layout(pad=3), "out": Layout(pad=3)})], [case(n=5)],
    ),
    "wrong only where `x` is not contiguous": (
        [case(n=5, layouts={"x": Layout(pad=3)}), case(n=5, layouts={"x": Layout(transposed=True)})],
        [case(n=layout.pad, layouts={"y": layout}) for layout in (Layout(pad=3), Layout(transposed=True))],
    ),
    "wrong only where no tensor for the result is passed": ([case(n=5, allocates=True)], [case(n=5)]),
    "wrong only where n is no multiple of 128": ([case(n=100), case(n=300)], [case(n=128), case(n=256)]),
    "wrong only where n is a power of two, or a multiple of 8192: its last block is full": (
        [case(n=n) for n in (1, 2, 128, 4096, 24576, 131072)], [case(n=n) for n in (127, 129, 16385, 40000)],
    ),
    "wrong only where n is no power of two and no multiple of 1024: its last block is not full": (
        [case(n=n) for n in (3, 100, 1009, 9000)], [case(n=n) for n in (1, 4, 128, 2048, 5120)],
    ),
    "wrong only in fp16": ([case("fp16", n=4)], [case("fp32", n=4), case("fp32", n=5)]),
    "": ([case(n=4)], [case(n=3), case(n=8), case(n=4, m=2)]),
}  # fmt: skip


@pytest.mark.parametrize(("words", "cases"), SETS.items(), ids=[words or "nothing" for words in SETS])
def test_what_holds_in_each_wrong_case_and_in_no_right_one(words, cases):
    assert contrast(*cases) == words


def test_without_a_wrong_case_there_is_nothing_to_say():
    with pytest.raises(ValueError, match="no case is wrong"):
        contrast([], [case(n=1)])
