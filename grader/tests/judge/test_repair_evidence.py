"""Edits near to an access that is wrong by its address come first."""

import pytest

from grader.judge.repair.candidates import candidates
from grader.judge.repair.evidence import EARLIER, OF_DIGITS, by_evidence, of_digits_first
from grader.judge.repair.source import Source

FILE = """
import triton
import triton.language as tl


@triton.jit
def fetch(base, at, size):
    return tl.load(base + at, mask=at < size, other=0.0)


@triton.jit
def kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    lanes = tl.arange(0, BLOCK)
    first = tl.program_id(0) * BLOCK + lanes
    second = tl.program_id(0) + lanes
    x = fetch(x_ptr, first, n)
    y = tl.load(y_ptr + second, mask=second < n, other=0.0)
    z = x * x - y
    tl.store(out_ptr + first, z + y, mask=first < n)


def function(x, y, out):
    kernel[(triton.cdiv(x.numel(), 64),)](x, y, out, x.numel(), BLOCK=64)
"""
SOURCE = Source(FILE)
LINES = {text.strip(): number for number, text in enumerate(FILE.split("\n"), start=1)}
LOAD_OF_Y = LINES["y = tl.load(y_ptr + second, mask=second < n, other=0.0)"]
STORE = LINES["tl.store(out_ptr + first, z + y, mask=first < n)"]
IN_FETCH = LINES["return tl.load(base + at, mask=at < size, other=0.0)"]
SECOND = LINES["second = tl.program_id(0) + lanes"]
FIRST = LINES["first = tl.program_id(0) * BLOCK + lanes"]
LAUNCH = LINES["kernel[(triton.cdiv(x.numel(), 64),)](x, y, out, x.numel(), BLOCK=64)"]
VALUE = LINES["z = x * x - y"]


def order(wrong, settled=()):
    edits = candidates(SOURCE, "function")
    after = by_evidence(SOURCE, edits, wrong, settled)
    assert sorted(map(id, edits)) == sorted(map(id, after))
    return edits, after


def places(edits, line):
    return [at for at, one in enumerate(edits) if one.line == line and len(one.parts) == 1]


@pytest.mark.parametrize(
    ("seen", "near", "far"),
    [
        (LOAD_OF_Y, SECOND, VALUE),  # the address is made of it
        (LOAD_OF_Y, SECOND, FIRST),
        (STORE, FIRST, SECOND),
        (STORE, FIRST, VALUE),  # a value that is stored is no address
        (IN_FETCH, FIRST, SECOND),  # handed over as a parameter
    ],
)
def test_what_an_address_is_made_of_comes_before_what_it_is_not(seen, near, far):
    before, after = order({seen})
    earlier = [old / max(new, 1) for old, new in zip(places(before, near), places(after, near), strict=True)]
    assert max(earlier) > EARLIER[-1] / 2  # what else is in the slice comes earlier as well
    later = [new - old for old, new in zip(places(before, far), places(after, far), strict=True)]
    assert min(later) >= 0


def test_a_nearer_statement_comes_earlier():
    before, after = order({LOAD_OF_Y})
    assert places(after, LOAD_OF_Y)[-1] < places(before, LOAD_OF_Y)[-1]
    grid = LINES["kernel[(triton.cdiv(x.numel(), 64),)](x, y, out, x.numel(), BLOCK=64)"]
    assert places(after, SECOND)[0] < places(after, grid)[0]


@pytest.mark.parametrize("lines", [(), (10_000,)])
def test_without_evidence_the_order_is_that_of_the_candidates(lines):
    before, after = order(lines)
    assert before == after


def test_what_a_right_output_is_made_of_comes_later():
    edits, after = order((), {STORE})
    assert sum(places(after, LAUNCH)) < sum(places(edits, LAUNCH))
    for line in (FIRST, VALUE, LOAD_OF_Y, IN_FETCH):
        assert sum(places(after, line)) > sum(places(edits, line))


def test_where_digits_alone_are_lost_edits_of_dtypes_come_first():
    text = FILE.replace("z = x * x - y", "z = (x * x - y).to(tl.float16)")
    edits = candidates(Source(text), "function")
    first = of_digits_first(edits)
    of_digits = [one for one in edits if any(words in one.kind for words in OF_DIGITS)]
    assert "the conversion in `(x * x - y).to(tl.float16)` loses digits" in {one.mistake for one in of_digits}
    assert first[: len(of_digits)] == of_digits != edits[: len(of_digits)]
    assert len(first) == len(edits)
