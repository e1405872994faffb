"""Working sets of a bandwidth curve, and its plateaus for L2 and DRAM."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

from grader.measure.survey.record import Bandwidth

SMALLEST, LARGEST = 2**16, 2**33  # bytes of a working set
MEMORY_SHARE = 0.4  # of the free memory: a copy and its check need half as much again
L2_PART, L2_SHARE = 4, 16
# On an H200, repeated reads of a set of 25 times the L2 were still faster than DRAM.
L2_TIMES, LEAST_DRAM = 64, 2**28


def within(curve: Sequence[Bandwidth], ends: tuple[float, float]) -> list[Bandwidth]:
    """Return the points whose working set is between two ends, both included."""
    return [one for one in curve if ends[0] <= one.working_set_bytes <= ends[1]]


def plateau(curve: Sequence[Bandwidth], ends: tuple[float, float]) -> float | None:
    """Return the median rate of the points between two ends in bytes/s; None if there are none."""
    rates = [one.bytes_per_s for one in within(curve, ends)]
    return median(rates) if rates else None


def within_l2(l2_bytes: int) -> tuple[float, float]:
    """Return the range of working sets that stay in L2, part of which may mirror the chip's other half."""
    return l2_bytes / L2_SHARE, l2_bytes / L2_PART


def beyond_l2(curve: Sequence[Bandwidth], l2_bytes: int) -> tuple[float, float]:
    """Return the range of working sets for which L2 hits hardly count; with little memory the upper half."""
    largest = max(one.working_set_bytes for one in curve)
    return min(max(L2_TIMES * l2_bytes, LEAST_DRAM), largest / 2), largest


def largest_set(free_bytes: int, l2_bytes: int) -> int:
    """Return the largest power of two in bytes that fits; RuntimeError if it is too small to measure DRAM."""
    largest = LARGEST
    while largest > MEMORY_SHARE * free_bytes and largest >= SMALLEST:
        largest //= 2
    if largest < max(4 * l2_bytes, 2 * SMALLEST):
        raise RuntimeError(f"only {size_words(free_bytes)} of GPU memory are free, which is not enough")
    return largest


def working_sets(largest: int, halves: bool) -> Iterator[int]:
    """Yield the bytes of each working set, ascending: powers of two and, with `halves`, 1.5 times those."""
    size = SMALLEST
    while size <= largest:
        yield size
        if halves and 3 * size // 2 <= largest:
            yield 3 * size // 2
        size *= 2


def size_words(size: float) -> str:
    """Format a number of bytes: 96 KiB, 1.5 GiB."""
    for unit, scale in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if size >= scale:
            return f"{size / scale:.4g} {unit}"
    return f"{size:.0f} B"
