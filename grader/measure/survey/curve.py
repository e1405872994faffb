"""Working sets and plateaus of a bandwidth curve: what is measured, and what counts for which memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

from grader.measure.survey.record import Bandwidth

SMALLEST, LARGEST = 2**16, 2**33  # bytes of a working set
MEMORY_SHARE = 0.4  # of what is free: a copy and its check need half as much again
L2_PART, L2_SHARE = 4, 16
# Read many times over, a set of 25 times the L2 of an H200 still came faster than DRAM can send it.
L2_TIMES, LEAST_DRAM = 64, 2**28


def within(curve: Sequence[Bandwidth], ends: tuple[float, float]) -> list[Bandwidth]:
    """The points whose working set lies between two ends."""
    return [one for one in curve if ends[0] <= one.working_set_bytes <= ends[1]]


def plateau(curve: Sequence[Bandwidth], ends: tuple[float, float]) -> float | None:
    """The median rate of the points between two ends, bytes/s; None where there is none of them."""
    rates = [one.bytes_per_s for one in within(curve, ends)]
    return median(rates) if rates else None


def within_l2(l2_bytes: int) -> tuple[float, float]:
    """Working sets that stay in L2, of which a part may hold copies for the other half of the chip."""
    return l2_bytes / L2_SHARE, l2_bytes / L2_PART


def beyond_l2(curve: Sequence[Bandwidth], l2_bytes: int) -> tuple[float, float]:
    """Working sets so large that hits in L2 count for little; with little memory the largest half of them."""
    largest = max(one.working_set_bytes for one in curve)
    return min(max(L2_TIMES * l2_bytes, LEAST_DRAM), largest / 2), largest


def largest_set(free_bytes: int, l2_bytes: int) -> int:
    """The largest power of two that fits; RuntimeError where it would not show the memory behind L2."""
    largest = LARGEST
    while largest > MEMORY_SHARE * free_bytes and largest >= SMALLEST:
        largest //= 2
    if largest < max(4 * l2_bytes, 2 * SMALLEST):
        raise RuntimeError(f"only {size_words(free_bytes)} of GPU memory are free, which is too little")
    return largest


def working_sets(largest: int, halves: bool) -> Iterator[int]:
    """Bytes of each working set, ascending: powers of two, and those times 1.5."""
    size = SMALLEST
    while size <= largest:
        yield size
        if halves and 3 * size // 2 <= largest:
            yield 3 * size // 2
        size *= 2


def size_words(size: float) -> str:
    """Bytes as a person writes them: 96 KiB, 1.5 GiB."""
    for unit, scale in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if size >= scale:
            return f"{size / scale:.4g} {unit}"
    return f"{size:.0f} B"
