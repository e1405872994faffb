"""Measure bandwidth against working set, matmul rates and launch overhead on a given device.

A device has the methods of `CudaDevice`; tests pass one with a simulated clock.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

from grader.measure.survey.curve import beyond_l2, largest_set, plateau, size_words, within_l2, working_sets
from grader.measure.survey.products import LEAST_CAPABILITY, Product
from grader.measure.survey.record import DTYPES, Bandwidth, Launch, Matmul, Measured
from grader.measure.survey.rounds import Plan, take, times
from grader.system.text import one_line

FIRST_BYTES = 2**28  # moved by the first launch, which shows how long a longer one will take
FIRST_SIDE = 1024
MOST_CALL_US = 25_000.0  # of a matmul, so that a GPU that is slow in fp64 does not take minutes
LAUNCHES, NODES = 200, 1000


@dataclass(frozen=True)
class Work:
    """`launch` makes some passes in one launch; `mistake` says what is wrong with their result, or ""."""

    launch: Callable[[int], None]
    mistake: Callable[[int], str]


def measure(device, plan: Plan, follower) -> Measured:
    """Measure everything in turn; RuntimeError if results are wrong or the memory is too small."""
    largest = largest_set(device.free_bytes(), device.l2_bytes)
    sets = list(working_sets(largest, plan.halves))
    follower.begin(2 * len(sets) + 1 + len(DTYPES) + 3)

    def step(words: str, item: str, work: Callable, *arguments):
        follower.running(words, item)
        found = work(device, plan, *arguments)
        follower.done()
        return found

    device.hold(largest)
    reads = [step("reads", size_words(size), bandwidth, size, device.reader) for size in sets]
    copies = [step("copies", size_words(size), bandwidth, size, device.copier) for size in sets]
    library = step("copy_ of torch", size_words(largest), bandwidth, largest, device.library_copier)
    device.give_back()
    rates = [step("matmul", dtype, matmul, dtype) for dtype in DTYPES]
    launch = Launch(
        back_to_back=step("launches", "back to back", back_to_back),
        graph_node=step("launches", "CUDA graph", graph_node),
        round_trip=step("launches", "round trip", round_trip),
    )
    return summarise(reads, copies, library, rates, launch, device.l2_bytes)


def summarise(reads, copies, library: Bandwidth, rates, launch: Launch, l2_bytes: int) -> Measured:
    """Build the record; plateaus and ridges are computed from the curves and rates."""
    dram = plateau(reads, beyond_l2(reads, l2_bytes))
    return Measured(
        reads=reads,
        copies=copies,
        library_copy=library,
        l2_read=plateau(reads, within_l2(l2_bytes)),
        l2_copy=plateau(copies, within_l2(l2_bytes)),
        dram_read=dram,
        dram_copy=plateau(copies, beyond_l2(copies, l2_bytes)),
        matmul=rates,
        launch=launch,
        ridges={one.dtype: one.flops_per_s / dram for one in rates if one.flops_per_s},
    )


def bandwidth(device, plan: Plan, size: int, make: Callable[[int], Work]) -> Bandwidth:
    """Measure one working set, with so many passes in a launch that the launch overhead does not count."""
    work, passes = make(size), max(1, FIRST_BYTES // size)
    work.launch(passes)  # compiles
    us = device.time_us(lambda: work.launch(passes))
    passes = max(1, round(passes * plan.block_us / us))
    # `block_us` is 0, so a block is one launch: the check has to know how many passes the last one made.
    timed = take(device, plan.rounds, lambda: work.launch(passes), 0.0, plan.warm_us)
    if words := work.mistake(passes):
        raise RuntimeError(f"working set of {size_words(size)}: {words}")
    moved = passes * size
    return Bandwidth(
        working_set_bytes=size,
        bytes_moved=moved,
        bytes_per_s=1e6 * moved / timed.median_us,
        timed=timed,
    )


def matmul(device, plan: Plan, dtype: str) -> Matmul:
    """Measure the rate of square products; the result has a reason instead if there is no rate."""
    least = LEAST_CAPABILITY[dtype]
    if device.capability < least:
        has, needs = (f"{value // 10}.{value % 10}" for value in (device.capability, least))
        words = f"{dtype} needs compute capability {needs}, this GPU has {has}"
        return Matmul(dtype=dtype, status="not on this GPU", reason=words)
    try:
        product = sized(device, plan, dtype)
        timed = take(device, plan.rounds, product.call, plan.matmul_block_us, plan.matmul_warm_us)
        wrong = product.mistake()
    except (RuntimeError, TypeError, ValueError, AttributeError) as error:
        # A library that lacks a dtype raises one of these. If the GPU itself failed, synchronize raises.
        device.synchronize()
        words = one_line(f"{type(error).__name__}: {error}")
        return Matmul(dtype=dtype, status="failed", reason=words)
    if wrong:
        return Matmul(dtype=dtype, status="failed", reason=wrong)
    rate = 2.0 * product.side**3 / timed.median_us * 1e6
    return Matmul(dtype=dtype, status="ok", side=product.side, flops_per_s=rate, timed=timed)


def sized(device, plan: Plan, dtype: str) -> Product:
    """Return the largest product, by doubling its side, that is short enough and fits into memory."""
    side = FIRST_SIDE
    while True:
        product = device.product(dtype, side)
        product.call()
        us = device.time_us(product.call)
        fits = 4 * product.bytes_needed <= device.free_bytes() // 2
        if 2 * side > plan.most_side or 8 * us > MOST_CALL_US or not fits:
            return product
        side *= 2


def back_to_back(device, plan: Plan):
    """Time launches of an empty kernel one after another, in microseconds for each."""
    many = functools.partial(times, _launched(device), LAUNCHES)
    return take(device, plan.rounds, many, plan.block_us, plan.warm_us, LAUNCHES)


def graph_node(device, plan: Plan):
    """Time the same launches as nodes of one CUDA graph."""
    many = device.graph(functools.partial(times, _launched(device), NODES))
    return take(device, plan.rounds, many, plan.block_us, plan.warm_us, NODES)


def round_trip(device, plan: Plan):
    """Time one launch and the wait until it has run, by the clock of the host."""
    launch = _launched(device)

    def there_and_back():
        launch()
        device.synchronize()

    many = functools.partial(times, there_and_back, LAUNCHES)
    return take(device, plan.rounds, many, plan.block_us, plan.warm_us, LAUNCHES, device.host_us)


def _launched(device) -> Callable[[], None]:
    """Return the launch of an empty kernel, compiled and run once."""
    launch = device.empty()
    launch()
    device.synchronize()
    return launch
