"""Races between programs, from their accesses alone."""

import numpy as np
import pytest

from grader.worker.witness import races
from grader.worker.witness.races import (
    ATOMIC,
    LOAD,
    MOST_ELEMENTS,
    MOST_OF_AN_ELEMENT,
    STORE,
    Access,
    conflict,
)

BASE = 1 << 20


def access(program, first, count, kind=STORE, values=0.0, line=3):
    addresses = (BASE + 4 * (first + np.arange(count))).astype(np.uint64)
    stored = np.full(count, values, np.float32) if kind == STORE else None
    return Access(BASE, kind, program, line, 4, addresses, np.ones(1, bool), stored, False, False)


def test_many_programs_that_store_the_same_bits_are_looked_at_once_each(monkeypatch):
    asked, stored = [], races._stored
    monkeypatch.setattr(races, "_stored", lambda *one: asked.append(1) or stored(*one))
    programs = 2 * MOST_OF_AN_ELEMENT
    assert conflict([access(number, number, programs, values=7.0) for number in range(programs)]) is None
    assert 0 < len(asked) <= MOST_ELEMENTS * MOST_OF_AN_ELEMENT


@pytest.mark.parametrize(
    ("accesses", "races"),
    [
        ([access(0, 0, 4, values=1.0), access(1, 3, 4, values=2.0)], True),
        ([access(0, 0, 4, values=1.0), access(1, 3, 4, values=1.0)], False),
        ([access(0, 0, 4, values=1.0), access(1, 4, 4, values=2.0)], False),
        ([access(0, 0, 4, values=1.0), access(0, 3, 4, values=2.0)], False),
        ([access(0, 0, 4, values=1.0), access(1, 3, 4, LOAD)], True),
        ([access(0, 0, 4, LOAD), access(1, 3, 4, LOAD)], False),
        ([access(0, 0, 4, ATOMIC), access(1, 3, 4, ATOMIC)], False),
        ([access(0, 0, 4, ATOMIC), access(1, 3, 4, LOAD)], True),
        # The third program's bits are others.
        ([*(access(number, 0, 4, values=1.0) for number in range(2)), access(2, 0, 4, values=2.0)], True),
        # Bits are compared, and not numbers.
        ([access(0, 0, 4, values=0.0), access(1, 0, 4, values=-0.0)], True),
    ],
)
def test_two_programs_race_where_one_stores_other_bits_than_the_other(accesses, races):
    assert (conflict(accesses) is not None) is races
