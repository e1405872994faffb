"""Find two programs of one launch that access one element in no order, of which one stores.

The interpreter runs programs one after the other, so that their values show no race. Their accesses do: one
program stores an element, another one loads or stores it too, and no lock or counter puts the two in order.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

LOAD, STORE, ATOMIC = range(3)
NAMES = ("load", "store", "atomic")
MOST_ELEMENTS = 256  # that two programs share, of one tensor, at which a launch is looked at closely
MOST_OF_AN_ELEMENT = 48  # accesses of one element that are compared in pairs
MOST_OF_A_LOCK = 64  # lanes of an atomic that is taken for a lock, a flag or a counter


class Access(NamedTuple):
    """One access by one program, with its active lanes."""

    memory: int  # the address at which the accessed tensor's memory begins
    kind: int
    program: int
    line: int
    size: int  # bytes of an element
    addresses: NDArray[np.uint64]
    lanes: NDArray[np.bool_]  # in the shape of `addresses`, or one that is broadcast to it
    values: NDArray[np.generic] | None  # that are stored, in any shape that is broadcast to `addresses`
    waits: bool  # whether it can wait for another program: an atomic comparison, or a volatile load
    whole: bool  # whether its elements are whole numbers, as those of locks and counters are


class Conflict(NamedTuple):
    """Two accesses in the order in which they ran, and the address of an element of both."""

    earlier: Access
    later: Access
    address: int


class _Memory(NamedTuple):
    """All accesses of one tensor's memory, lane by lane in the order in which they ran."""

    base: int
    size: int
    elements: NDArray[np.int64]
    at: NDArray[np.int64]  # the number of the access
    program: NDArray[np.int64]
    kind: NDArray[np.int64]


def conflict(accesses: Sequence[Access]) -> Conflict | None:
    """Return a race of one launch, None if it has none. `accesses` are in the order in which they ran."""
    by_memory: dict[int, list[int]] = defaultdict(list)
    for at, access in enumerate(accesses):
        by_memory[access.memory].append(at)
    order: _Order | None = None
    for numbers in by_memory.values():
        kinds = {accesses[at].kind for at in numbers}
        if STORE not in kinds and not {LOAD, ATOMIC} <= kinds:
            continue
        memory = _gathered(accesses, numbers)
        shared = _shared(memory)
        if not shared.size:
            continue
        order = order or _Order(accesses)
        for element in shared[np.linspace(0, shared.size - 1, min(shared.size, MOST_ELEMENTS)).astype(int)]:
            address = memory.base + int(element) * memory.size
            if address in order.locks:
                continue
            here = [*dict.fromkeys(memory.at[memory.elements == element].tolist())][:MOST_OF_AN_ELEMENT]
            stored = [_stored(accesses[at], address) for at in here]
            if len({*stored}) == 1 and len(stored[0]) == 1:
                continue  # all of them store the same bits
            for (earlier, first), (later, second) in itertools.combinations(
                zip(here, stored, strict=True), 2
            ):
                if not _must_be_in_order(accesses[earlier], accesses[later]):
                    continue
                # Of the same bits, as overlapping tiles store them, the order does not matter.
                if (len(first) == 1 and first == second) or order.holds(earlier, later):
                    continue
                return Conflict(accesses[earlier], accesses[later], address)
    return None


def _gathered(accesses: Sequence[Access], numbers: Sequence[int]) -> _Memory:
    addresses = [_active(accesses[at]) for at in numbers]
    counts = [one.size for one in addresses]
    # Where accesses differ in width, a wide one is taken for its first bytes: that finds less, nothing false.
    size = min(accesses[at].size for at in numbers)
    every = np.concatenate(addresses)
    base = int(every.min()) if every.size else 0
    return _Memory(
        base,
        size,
        ((every - np.uint64(base)) // np.uint64(size)).astype(np.int64),
        np.repeat(np.array(numbers), counts),
        np.repeat(np.array([accesses[at].program for at in numbers]), counts),
        np.repeat(np.array([accesses[at].kind for at in numbers]), counts),
    )


def _active(access: Access) -> NDArray[np.uint64]:
    if access.lanes.all():
        return access.addresses.ravel()
    return access.addresses[np.broadcast_to(access.lanes, access.addresses.shape)]


def _shared(memory: _Memory) -> NDArray[np.int64]:
    """Return the elements that one program stores and another one accesses, in their order."""
    elements, kind = memory.elements, memory.kind
    if not elements.size:
        return elements
    span = int(elements.max()) + 1
    if span > 64 * elements.size + 4096:  # far apart: number only those that are accessed
        values, elements = np.unique(elements, return_inverse=True)
    else:
        values = np.arange(span)
    found = _by_another(elements, memory.program, kind == STORE, values.size)
    if (kind == ATOMIC).any() and (kind == LOAD).any():
        loaded = np.zeros(values.size, dtype=bool)
        loaded[elements[kind == LOAD]] = True
        asked = (kind != STORE) & loaded[elements]
        atomic = kind[asked] == ATOMIC
        more = _by_another(elements[asked], memory.program[asked], atomic, values.size)
        found = np.concatenate([found, more])
    return np.unique(values[found])


def _by_another(
    elements: NDArray[np.int64], program: NDArray[np.int64], writes: NDArray[np.bool_], span: int
) -> NDArray[np.int64]:
    """Return the elements of accesses by another program than the one that wrote the element last."""
    last = np.full(span, -1, dtype=np.int64)
    last[elements[writes]] = program[writes]
    wrote = last[elements]
    return elements[(wrote >= 0) & (wrote != program)]


def _must_be_in_order(earlier: Access, later: Access) -> bool:
    """Return whether two accesses to one element are of two programs, and one of them changes it."""
    return earlier.program != later.program and {earlier.kind, later.kind} not in ({LOAD}, {ATOMIC})


def _stored(access: Access, address: int) -> frozenset[bytes]:
    """Return the bits that a store writes to an address, by each of its lanes; nothing of another access."""
    if access.kind != STORE:
        return frozenset()
    assert access.values is not None
    here = (access.addresses == np.uint64(address)) & access.lanes
    values = np.broadcast_to(access.values, access.addresses.shape)[here]
    return frozenset(value.tobytes() for value in values)


class _Order:
    """Which accesses of one program come before those of another: by locks, flags and counters."""

    def __init__(self, accesses: Sequence[Access]):
        self.locks = {int(word) for one in accesses if one.waits for word in _active(one)}
        self._accesses = accesses
        # By program: the words by which programs wait for each other, with the first access to each, the last
        # atomic one, and with the memory that it lies in. A plain store may be seen before what precedes it.
        self._words: dict[int, dict[int, tuple[int, int, int]]] = defaultdict(dict)
        for at, access in enumerate(accesses):
            if access.addresses.size > MOST_OF_A_LOCK or not access.whole:
                continue
            for word in map(int, _active(access)):
                if access.kind == ATOMIC or word in self.locks:
                    first, last, _ = self._words[access.program].get(word, (at, -1, 0))
                    last = at if access.kind == ATOMIC else last
                    self._words[access.program][word] = (first, last, access.memory)

    def holds(self, earlier: int, later: int) -> bool:
        """Return whether the earlier access is over before the later one begins, on any machine.

        So it is if its program changes a lock or a counter afterwards, by an atomic operation, and the other
        one looks at that first.
        A number among the data is no counter, although programs may add to it atomically.
        """
        released = self._words[self._accesses[earlier].program]
        acquired = self._words[self._accesses[later].program]
        return any(
            last >= earlier
            and word in acquired
            and acquired[word][0] <= later
            and (word in self.locks or memory != self._accesses[earlier].memory)
            for word, (_, last, memory) in released.items()
        )
