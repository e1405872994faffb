"""Compare the numbers with a unit in a student's prose with the measured figures."""

from __future__ import annotations

import bisect
import re
from collections import defaultdict
from collections.abc import Iterator

from grader.measure.kernel_log.record import Record

TIMES = "\u00d7"
LARGEST = 1e30  # larger values of a record are ignored; an integer in JSON has no limit
_UNITS = {
    "%": ("%", 1.0), "percent": ("%", 1.0), "x": ("x", 1.0), TIMES: ("x", 1.0),
    "ns": ("us", 1e-3), "us": ("us", 1.0), "µs": ("us", 1.0), "μs": ("us", 1.0), "ms": ("us", 1e3),
    "gb/s": ("TB/s", 1e-3), "tb/s": ("TB/s", 1.0),
    "gflop/s": ("TFLOP/s", 1e-3), "tflop/s": ("TFLOP/s", 1.0), "tflops": ("TFLOP/s", 1.0),
    "register": ("registers", 1.0), "registers": ("registers", 1.0),
    "byte": ("bytes", 1.0), "bytes": ("bytes", 1.0), "kib": ("bytes", 2.0**10), "mib": ("bytes", 2.0**20),
    "gib": ("bytes", 2.0**30), "kb": ("bytes", 1e3), "mb": ("bytes", 1e6), "gb": ("bytes", 1e9),
}  # fmt: skip
_BINARY = {"kb": 2.0**10, "mb": 2.0**20, "gb": 2.0**30}  # as for shared memory
_WORDS = "|".join(sorted(map(re.escape, _UNITS), key=len, reverse=True))
# Emphasis marks may be between a number and its unit; the x in 128x256 is not a unit.
_NUMBER = re.compile(
    rf"(?<![\w.,])(\d{{1,3}}(?:,\d{{3}})+(?:\.\d+)?|\d+(?:\.\d+)?)([\s*_`~]*)({_WORDS})(?![\w/])",
    re.IGNORECASE,
)
_FORESEEN = re.compile(r"predict|expect|guess", re.IGNORECASE)


class Known:
    """Figures by unit, looked up at the precision of a text."""

    def __init__(self):
        self._by_unit: dict[str, list[float]] = defaultdict(list)
        self._sorted = True

    def add(self, unit: str, *values: float) -> None:
        """Add figures without their sign, which prose expresses in words."""
        self._by_unit[unit] += map(abs, values)
        self._sorted = False

    def has(self, unit: str, value: float, half: float) -> bool:
        """Return whether a figure rounds to this value: it differs by at most `half` of the last digit."""
        if not self._sorted:
            for values in self._by_unit.values():
                values.sort()
            self._sorted = True
        half *= 1 + 1e-9  # 16.75 printed as 16.8
        values = self._by_unit[unit]
        at = bisect.bisect_left(values, value - half - 1e-12)
        return at < len(values) and values[at] <= value + half + 1e-12


def numbers(line: str) -> Iterator[tuple[str, list[tuple[str, float, float]]]]:
    """Yield each number with a unit as written, and its meanings: unit, value, half of its last digit."""
    for found in _NUMBER.finditer(line):
        digits, gap, word = found[1].replace(",", ""), found[2], found[3].lower()
        if word in ("x", TIMES) and gap:
            continue  # 64 x 64 is a shape
        unit, factor = _UNITS[word]
        half = 0.5 * 10.0 ** -len(digits.partition(".")[2])
        factors = [factor, _BINARY[word]] if word in _BINARY else [factor]
        yield found[0], [(unit, float(digits) * one, half * one) for one in factors]


def unknown(line: str, known: Known, foreseen: Known) -> list[str]:
    """List the numbers of a line that are not a figure; predicted ones count if the line says they are."""
    sources = [known, foreseen] if _FORESEEN.search(line) else [known]
    return [
        written
        for written, meanings in numbers(line)
        if not any(source.has(*meaning) for source in sources for meaning in meanings)
    ]


def learn(record: Record, block: str, earlier: list[Record], known: Known, foreseen: Known) -> None:
    """Add what a step measured, what its block shows, and its time relative to each earlier step."""
    for line in block.splitlines():
        for _, meanings in numbers(line):
            (foreseen if line.startswith(">") else known).add(meanings[0][0], meanings[0][1])
    for unit, value in _recorded(record):
        known.add(unit, value)
    now = record.timing and record.timing.ours.median_us
    for one in earlier:
        was = one.timing and one.timing.ours.median_us
        if now and was and one.op == record.op and one.size == record.size:
            _add_ratio(known, was / now)
            known.add("x", now / was)


def _add_ratio(known: Known, ratio: float) -> None:
    known.add("x", ratio)
    known.add("%", 100 * ratio, 100 * (ratio - 1))


def _recorded(record: Record) -> Iterator[tuple[str, float]]:
    gpu = record.machine.gpu
    peaks = (("TB/s", "bandwidth", 1e-12), ("TFLOP/s", "peak_flops", 1e-12), ("bytes", "memory_bytes", 1.0))
    for unit, name, factor in peaks:
        value = getattr(gpu, name, None)
        if value is not None and abs(value) < LARGEST:
            yield unit, factor * value
    timing = record.timing
    arms = [arm for arm in (timing.ours, timing.previous, timing.baseline) if arm] if timing else []
    for arm in arms:
        yield from (("us", us) for us in (arm.median_us,) if us)
        yield from ((timing.unit, rate) for rate in (arm.rate,) if rate)
    for pair in [arm.of_baseline for arm in arms] + ([timing.against_previous] if timing else []):
        for ratio in (pair.ratio, pair.low, pair.high) if pair else ():
            yield from (("x", ratio), ("%", 100 * ratio), ("%", 100 * (ratio - 1)))
    for kernel in record.compiled:
        yield from (
            ("registers", kernel.registers),
            ("bytes", kernel.spill_bytes),
            ("bytes", kernel.shared_bytes),
        )
    for kernel in record.counters or []:
        for figure in (*kernel.figures.values(), *kernel.stalls.values()):
            yield figure.unit, figure.value
