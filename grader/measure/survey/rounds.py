"""Warm up, time rounds of one call on a device, and record the clocks that were read after each."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

from grader.judge.statistics import spread
from grader.measure.clocks import summary
from grader.measure.survey.record import Timed


@dataclass(frozen=True)
class Plan:
    """How much to measure. A matmul draws so much power that the GPU needs time to settle at its clock."""

    rounds: int = 11
    block_us: float = 12_000.0
    warm_us: float = 60_000.0
    matmul_block_us: float = 25_000.0
    matmul_warm_us: float = 400_000.0
    halves: bool = True  # also working sets of 1.5 times a power of two
    most_side: int = 8192


QUICK = Plan(
    rounds=5, block_us=5_000.0, warm_us=20_000.0, matmul_warm_us=150_000.0, halves=False, most_side=4096
)


def take(
    device,
    rounds: int,
    call: Callable[[], None],
    block_us: float,
    warm_us: float,
    parts: int = 1,
    time_us: Callable | None = None,
) -> Timed:
    """Time rounds of `block_us` each; a figure is in microseconds for each of the `parts` of a call."""
    time_us = time_us or device.time_us
    spent = us = 0.0
    while spent < warm_us:
        us = time_us(call)
        spent += us
    block = functools.partial(times, call, calls := max(1, round(block_us / us)))
    clocks, kept, dropped, throttled = device.clock_reader(), [], 0, False
    while len(kept) < rounds:
        us = time_us(block) / calls / parts
        reasons = clocks.sample()
        if reasons and dropped < rounds:
            dropped += 1
        else:
            kept.append(us)
            throttled = throttled or bool(reasons)
    samples = clocks.samples
    return Timed(
        rounds_us=kept,
        spread_us=spread(kept),
        rounds_dropped=dropped,
        throttled=throttled,
        clocks=summary(samples.sm_mhz, samples.watts, samples.celsius, samples.reasons, clocks.missing),
    )


def times(call: Callable[[], None], count: int) -> None:
    """Make `count` calls."""
    for _ in range(count):
        call()
