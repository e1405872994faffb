"""What other expressions would have computed in a file, in place of its own.

The judge puts a call of `either` around an expression, with other expressions that it might try there. Of
those that compute the same, one is enough to be tried. To try one, it is selected for a run of the same file,
which takes a part of the time of reading a file that has it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
import triton.language as tl
from triton.runtime import interpreter

from grader.worker.messages import RAISES, SAME

# Which evaluations of one place are looked at. Of loops of 1 to 13, 15 to 17 and 33 iterations the last one
# is among them, in which masks matter most; of powers of two alone it is of few.
LOOKED_AT = frozenset((1, 2, 3, 5, 8, 9, 12, 13, 16, 17, 21, 22, 30, 33))


@dataclass
class _Place:
    """What one place of a kernel has computed so far, the file's own expression first."""

    evaluations: int = 0
    seen: list[list[object]] = field(default_factory=list)


_places: dict[int, _Place] = {}
_selected: dict[int, int] = {}
_compared: list[int] = [0, 1]


@contextlib.contextmanager
def selecting(numbers: Mapping[str, int], compared: tuple[int, int]) -> Iterator[None]:
    """Let other expressions run in place of the file's own, each by the number of its place.

    If there are none, those are compared of places whose number leaves a rest by a divisor: `compared`.
    """
    _compared[:] = compared
    _selected.update({int(place): number for place, number in numbers.items()})
    try:
        yield
    finally:
        _selected.clear()


def either(number: int, count: int, compute: Callable[[int], object]) -> object:
    """Return the value that is selected at place `number` of the file.

    `compute` gives the file's own value for 0, and those of other expressions for 1 to `count` - 1. If
    nothing is selected anywhere, it is the file's own, and what the others compute is noted.
    """
    if _selected:
        return compute(_selected.get(number, 0))
    value = compute(0)
    if number % _compared[1] != _compared[0]:
        return value
    place = _places.setdefault(number, _Place())
    place.evaluations += 1
    if place.evaluations not in LOOKED_AT:
        return value
    place.seen = place.seen or [[] for _ in range(count)]
    place.seen[0].append(hash(_told(value)))
    kept = [value]  # so that no two tensors of host code have the same memory, one after the other
    for at, seen in enumerate(place.seen[1:], 1):
        if None not in seen:
            try:
                kept.append(compute(at))
                seen.append(hash(_told(kept[-1])))
            except Exception:  # whatever an expression raises that makes no sense here
                seen.append(None)
    return value


def taken() -> dict[str, list[int]]:
    """Return for each place, by its number, a number for each other expression, and forget them.

    It is SAME as the file's own, or RAISES, or the same for expressions that computed the same.
    """
    found = {}
    for number, place in _places.items():
        first: dict[tuple[object, ...], int] = {tuple(place.seen[0]): SAME}
        found[str(number)] = [
            RAISES if None in seen else first.setdefault(tuple(seen), at)
            for at, seen in enumerate(place.seen[1:], start=1)
        ]
    _places.clear()
    return found


def _told(value: object) -> object:
    """Return what tells a value of a kernel from others; it can be hashed."""
    if isinstance(value, tl.tensor):
        return str(value.type), _told(value.handle)
    if isinstance(value, tl.constexpr):
        return _told(value.value)
    if isinstance(value, tuple | list):
        return tuple(map(_told, value))
    if isinstance(value, torch.Tensor):  # of host code: which memory it is, and how it is laid out
        return value.data_ptr(), value.shape, value.stride(), str(value.dtype)
    if isinstance(value, np.ndarray):
        return str(value.dtype), value.shape, value.tobytes()
    if type(value).__module__ == interpreter.__name__:  # a block; or a block pointer, which consists of some
        return tuple(_told(part) for name, part in vars(value).items() if name != "attr")
    return type(value), str(value)
