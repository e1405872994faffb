"""Check that a survey is consistent and physically possible, and that its README shows the record."""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

from grader.judge.statistics import spread
from grader.measure.survey.curve import beyond_l2, plateau, within_l2
from grader.measure.survey.record import DTYPES, Bandwidth, Measured, SurveyRecord
from grader.measure.survey.sources import AGAIN
from grader.measure.survey.table import problem, timings
from grader.measure.survey.theory import theory
from grader.system.files import read_bytes

ABOVE, BELOW = 1.05, 0.05  # share of theory: clocks are read in whole MHz, and a GPU may boost a little
L2_THAT_SHOWS = 2 << 20  # bytes; with a smaller cache the launch overhead hides the plateau
PLACEHOLDER = "_your words_"
ROUNDING = 1e-6  # relative; JSON and another order of the same arithmetic may change this much


def problems(record: SurveyRecord) -> list[str]:
    """List what is inconsistent or physically impossible in a record."""
    return [
        *_dates(record),
        *_attributes(record),
        *_arithmetic(record.measured, record.attributes.l2_bytes),
        *_bounds(record),
    ]


def readme_problems(folder: Path, record: SurveyRecord) -> list[str]:
    """Say why the README does not show the record in exactly one region, or which answers are missing."""
    try:
        text = read_bytes(folder / "README.md").decode()
    except FileNotFoundError:
        return [f"README.md is missing: {AGAIN}"]
    except (OSError, ValueError) as error:
        return [f"README.md cannot be read: {error}"]
    words = problem(text, record)
    if words:
        return [words]
    open_answers = text.count(PLACEHOLDER)
    return [f"README.md has {open_answers} answers to write, marked {PLACEHOLDER}"] if open_answers else []


def _dates(record: SurveyRecord) -> Iterator[str]:
    try:
        when = datetime.datetime.fromisoformat(record.date)
    except ValueError:
        yield "the date is not in ISO 8601 format"
        return
    if when.tzinfo is None:
        yield "the date has no time zone"
    elif when > datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(days=1):
        yield "the date is in the future"


def _attributes(record: SurveyRecord) -> Iterator[str]:
    gpu, attributes = record.machine.gpu, record.attributes
    if gpu.capability != attributes.capability:
        yield f"compute capability: {gpu.capability} for the GPU, {attributes.capability} in its attributes"
    if gpu.max_sm_mhz and gpu.max_sm_mhz != attributes.sm_mhz:
        yield f"highest SM clock: {gpu.max_sm_mhz} MHz for the GPU, {attributes.sm_mhz} in its attributes"
    expected, recorded = theory(attributes), record.theory
    if (expected.flop_per_clock, expected.source) != (recorded.flop_per_clock, recorded.source):
        yield f"the theory is not that of compute capability {attributes.capability}"
    elif not _alike(expected.model_dump(), recorded.model_dump()):
        yield "the theory does not follow from the clocks and units of this GPU"


def _arithmetic(m: Measured, l2_bytes: int) -> Iterator[str]:
    for name, curve in (("reads", m.reads), ("copies", m.copies)):
        sizes = [one.working_set_bytes for one in curve]
        if sizes != sorted(set(sizes)):
            yield f"the working sets of {name} are not in ascending order"
        yield from _rates(name, curve)
    yield from _rates("copy_ of torch", [m.library_copy])
    for one in m.matmul:
        if (one.status == "ok") != (None not in (one.side, one.flops_per_s, one.timed)):
            yield f"matmul in {one.dtype}: the status {one.status} does not agree with its figures"
        elif one.status == "ok" and not _near(2e6 * one.side**3 / one.timed.median_us, one.flops_per_s):
            yield f"the rate of matmul in {one.dtype} does not follow from its rounds"
        elif one.status != "ok" and not one.reason:
            yield f"matmul in {one.dtype} has neither a rate nor a reason"
    if [one.dtype for one in m.matmul] != list(DTYPES):
        yield f"matmul was not measured once in each of {', '.join(DTYPES)}"
    followed = {
        "l2_read": plateau(m.reads, within_l2(l2_bytes)),
        "l2_copy": plateau(m.copies, within_l2(l2_bytes)),
        "dram_read": plateau(m.reads, beyond_l2(m.reads, l2_bytes)),
        "dram_copy": plateau(m.copies, beyond_l2(m.copies, l2_bytes)),
    }
    for name, value in followed.items():
        if not _alike(value, getattr(m, name)):
            yield f"the plateau {name} does not follow from its curve"
    ridges = {one.dtype: one.flops_per_s / m.dram_read for one in m.matmul if one.flops_per_s}
    if not _alike(ridges, m.ridges):
        yield "a ridge is not the rate of its dtype divided by the bandwidth of DRAM"


def _rates(name: str, curve: Sequence[Bandwidth]) -> Iterator[str]:
    for one in curve:
        if not _near(1e6 * one.bytes_moved / one.timed.median_us, one.bytes_per_s):
            yield f"the rate of {name} at {one.working_set_bytes} bytes does not follow from its rounds"
        if one.bytes_moved % one.working_set_bytes:
            yield f"{name} at {one.working_set_bytes} bytes: the bytes moved are not whole working sets"


def _bounds(record: SurveyRecord) -> Iterator[str]:
    m = record.measured
    for number, timed in enumerate(timings(record), 1):
        if not _alike(spread(timed.rounds_us), timed.spread_us):
            yield f"the spread of timing {number} is not that of its rounds"
    dram, rates = record.theory.dram_bytes_per_s, record.theory.flops_per_s
    bounded = [
        (f"the DRAM bandwidth, {name},", getattr(m, name), dram) for name in ("dram_read", "dram_copy")
    ]
    bounded += [("the bandwidth of torch's copy_", m.library_copy.bytes_per_s, dram)]
    for one in m.matmul:
        if one.status == "ok" and rates and one.dtype not in rates:
            yield f"matmul in {one.dtype} has a rate, but this GPU does not support the dtype"
        bounded.append((f"the rate of matmul in {one.dtype}", one.flops_per_s, rates.get(one.dtype)))
    for name, value, limit in bounded:
        if value and limit and not BELOW <= value / limit <= ABOVE:
            yield f"{name} is {100 * value / limit:.0f} % of what theory allows"
    if record.attributes.l2_bytes >= L2_THAT_SHOWS:
        for what, inside, outside in (("reads", m.l2_read, m.dram_read), ("copies", m.l2_copy, m.dram_copy)):
            if inside is None:
                yield f"no working set of {what} is well inside the L2 cache"
            elif inside <= outside:
                yield f"{what} from the L2 cache are not faster than from DRAM"
    if m.launch.graph_node.median_us > m.launch.round_trip.median_us:
        yield "a node of a CUDA graph takes longer than a launch that is waited for"


def _near(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=ROUNDING)


def _alike(one, other) -> bool:
    """Compare two JSON values; numbers may differ by rounding errors."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_alike(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_alike, one, other))
    if isinstance(one, (int, float)) and isinstance(other, (int, float)):
        return _near(one, other)
    return one == other
