"""The record of a call's memory accesses, as a worker sends it: a claim, which can only cost points."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from grader.system.text import one_line
from grader.worker.protocol import Json, ProtocolError, decode

MOST_FACTS = 4  # of a kind in one call; a report shows the first
MOST_REACHES = 128  # lines times tensors of one call
MOST_LAUNCHES = 16  # of one call
MOST_AXES = 8
LARGEST = 1 << 63  # of any number in a record
MOST_LINES = 10**7  # of a file

Index = tuple[int, int, int]  # of a program, or the sizes of a grid


@dataclass(frozen=True)
class Argument:
    """A tensor that was passed to a kernel: the parameter's name, its shape and strides in elements."""

    name: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]


NO_TENSOR = Argument("", (), ())


@dataclass(frozen=True)
class Outside:
    """An access by lanes whose address lies outside of the memory of the tensor that it began with.

    `first` and `last` are the lowest and the highest such place, in elements from the tensor's first one.
    """

    tensor: Argument
    first: int
    last: int
    writes: bool
    masked: bool  # whether it was written with a mask, or with a check of its boundary
    line: int  # 0 if it is not known
    program: Index
    grid: Index


@dataclass(frozen=True)
class Race:
    """Two programs of one launch that access one element in no order, and of which one stores at least.

    `element` counts from the tensor's first one. An access is "load", "store" or "atomic".
    """

    tensor: Argument
    element: int
    accesses: tuple[str, str]
    lines: tuple[int, int]
    programs: tuple[Index, Index]
    grid: Index


@dataclass(frozen=True)
class Birth:
    """The operation of which a NaN or inf came first, with its operands and its result as text.

    Or one that lost most of its digits, or that wraps around: then `exact` is what it would give without any
    rounding, and with more bits.
    """

    operation: str  # a sign, or a name such as "exp"
    operands: tuple[str, ...]
    result: str  # a number, "nan", "inf" or "-inf"
    line: int
    program: Index
    exact: str = ""


@dataclass(frozen=True)
class Followed:
    """A part of an input, indices `start` up to `stop` of one axis, and an element of an output.

    The input begins `offset` bytes into the lent memory, and the element lies `target` bytes into it. It is
    number `place` of the output, whose rows may be stored one behind the other in a tensor of the file's own.
    `size` is that of an element, in bytes.
    """

    offset: int
    size: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    axis: int
    start: int
    stop: int
    target: int
    place: int


@dataclass(frozen=True)
class Influence:
    """The way of a part of an input into an element of an output.

    `line` is where it first meets numbers that do not depend on it, 0 if nowhere. On its way it was stored in
    a tensor of the file's own by line `stored`, and loaded from there by line `loaded`; both are 0 if not.
    """

    line: int
    loaded: int = 0
    stored: int = 0


@dataclass(frozen=True)
class Reach:
    """How far a line reaches into a tensor in one call: its lowest and its highest active lane.

    `first` and `last` count elements from the tensor's first one. The tensor begins `offset` bytes into the
    lent memory; a tensor of the file's own has -1, and a lent one no name.
    """

    tensor: Argument
    offset: int
    line: int
    writes: bool
    first: int
    last: int


@dataclass(frozen=True)
class Left:
    """Elements of a lent tensor that a store reaches with lanes that its mask leaves out, and no lane stores.

    `first` and `last` count from the tensor's first element, which is `offset` bytes into the lent memory.
    """

    offset: int
    line: int
    first: int
    last: int
    count: int


@dataclass(frozen=True)
class Launch:
    """One launch of a call: the line of the host code, the grid, whether programs asked for its size, and
    whether one made the same access twice, as it does in a loop.
    """

    line: int
    grid: Index
    is_asked_for: bool
    has_turns: bool = False


@dataclass(frozen=True)
class Witnessed:
    """What was seen of one call. Two are equal if the same was found, whatever the calls had to do."""

    outside: tuple[Outside, ...] = ()
    races: tuple[Race, ...] = ()
    births: tuple[Birth, ...] = ()  # an inf, and the NaN that came of it; only if they were asked for
    reaches: tuple[Reach, ...] = field(default=(), compare=False)
    left: tuple[Left, ...] = field(default=(), compare=False)
    launches: tuple[Launch, ...] = field(default=(), compare=False)  # in their order
    accesses: int = field(default=0, compare=False)  # loads, stores and atomics of all programs
    lanes: int = field(default=0, compare=False)  # of all accesses, those that are masked off as well
    again: int = field(default=0, compare=False)  # lanes that store an element of lent memory once more
    # Sums and products of 32 bits that wrap around, looked for where a tensor reaches beyond 2^31 elements.
    wraps: tuple[Birth, ...] = field(default=(), compare=False)
    # Functions of reductions and scans that are not associative: both results of three elements.
    groupings: tuple[Birth, ...] = field(default=(), compare=False)
    influence: Influence | None = field(default=None, compare=False)  # only if a part was followed

    @classmethod
    def claimed(cls, claim: Json) -> Witnessed:
        """Read the record from a reply; an empty one where it is missing or has a value that cannot be."""
        try:
            found = decode(cls, claim)
        except ProtocolError:
            return cls()
        longest = max(
            len(found.outside),
            len(found.races),
            len(found.births),
            len(found.left),
            len(found.wraps),
            len(found.groupings),
        )
        valid = (
            *map(_is_possible_place, found.outside),
            *map(_is_possible_race, found.races),
            *map(_is_possible_birth, (*found.births, *found.wraps, *found.groupings)),
            *map(_is_possible_reach, found.reaches),
            *map(_is_possible_left, found.left),
            found.influence is None or _is_possible_influence(found.influence),
            *(_are_possible(NO_TENSOR, one.grid, (one.line,)) for one in found.launches),
            len(found.reaches) <= MOST_REACHES,
            len(found.launches) <= MOST_LAUNCHES,
        )
        counted = all(0 <= count < LARGEST for count in (found.accesses, found.lanes, found.again))
        if longest > MOST_FACTS or not counted or not all(valid):
            return cls()
        return cls(
            tuple(replace(one, tensor=_shown(one.tensor)) for one in found.outside),
            tuple(replace(one, tensor=_shown(one.tensor)) for one in found.races),
            tuple(replace(one, operation=one_line(one.operation)) for one in found.births),
            tuple(replace(one, tensor=_shown(one.tensor)) for one in found.reaches),
            found.left,
            found.launches,
            found.accesses,
            found.lanes,
            found.again,
            tuple(replace(one, operation=one_line(one.operation)) for one in found.wraps),
            tuple(replace(one, operation=one_line(one.operation)) for one in found.groupings),
            influence=found.influence,
        )


def _shown(argument: Argument) -> Argument:
    return replace(argument, name=one_line(argument.name))


def _is_possible_place(fact: Outside) -> bool:
    numbers = (fact.first, fact.last, *fact.program, *fact.grid)
    return fact.first <= fact.last and _are_possible(fact.tensor, numbers, (fact.line,))


def _is_possible_reach(reach: Reach) -> bool:
    places = (reach.first, reach.last, reach.offset)
    return (
        reach.line > 0
        and reach.offset >= -1
        and reach.first <= reach.last
        and _are_possible(reach.tensor, places, (reach.line,))
    )


def _is_possible_left(left: Left) -> bool:
    places = left.offset, left.line, left.first, left.last, left.count
    return all(0 <= place < LARGEST for place in places) and left.line < MOST_LINES


def _is_possible_influence(found: Influence) -> bool:
    return all(0 <= line < MOST_LINES for line in (found.line, found.loaded, found.stored))


def _is_possible_race(fact: Race) -> bool:
    numbers = (fact.element, *fact.programs[0], *fact.programs[1], *fact.grid)
    return {"load", "store", "atomic"} >= set(fact.accesses) and _are_possible(
        fact.tensor, numbers, fact.lines
    )


def _is_possible_birth(fact: Birth) -> bool:
    return (
        0 <= fact.line < MOST_LINES
        and len(fact.operands) <= 3
        and all(_is_number(word) for word in (fact.result, *fact.operands))
        and (not fact.exact or _is_number(fact.exact))
    )


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return len(word) < 32 and word.isascii()


def _are_possible(tensor: Argument, numbers: Sequence[int], lines: Sequence[int]) -> bool:
    return (
        len(tensor.shape) == len(tensor.strides) <= MOST_AXES
        and all(abs(number) < LARGEST for number in (*tensor.shape, *tensor.strides, *numbers))
        and all(size >= 0 for size in tensor.shape)
        and all(0 <= line < MOST_LINES for line in lines)
    )
