"""Render the table of a step in the kernel log: its figures beside those of the step it is compared with."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Sequence

from grader.measure.kernel_log.record import Figure, KernelCounters, Measured, Record
from grader.report import markdown
from grader.system.text import one_line, printable

_SPECIAL = re.compile(r"([\\`*_\[\]|~$#])")
NOT_REPORTED = "not reported"
STALLS_SHOWN = 3
LABELS = (
    "duration", "SM throughput", "tensor pipe", "DRAM throughput", "DRAM bytes read", "DRAM bytes written",
    "L2 hit rate", "achieved occupancy", "theoretical occupancy", "registers of a thread", "local loads",
    "local stores", "static shared memory", "dynamic shared memory", "bank conflicts of loads",
    "bank conflicts of stores", "grid", "block",
)  # fmt: skip


def escape(text: str) -> str:
    """Escape one line of a student's text, so that Markdown shows it literally."""
    return _SPECIAL.sub(r"\\\1", html.escape(printable(text).strip(), quote=False))


def table(record: Record, before: Record | None) -> str:
    """Render one row for each figure: before, now, the change, and the profiler's name for the metric."""
    was = f"step {before.number}" if before else "before"
    heads = ("figure", was, f"step {record.number}", "change", "metric")
    alike = before is not None and before.size == record.size
    rows = [*_timed(record, alike), *_compiled(record, before), *_counted(record, before if alike else None)]
    return markdown.table(heads, rows, "lrrrl")


def shown(value: float, unit: str) -> str:
    """Format a value with its unit; the number of decimals depends on the unit."""
    if unit == "bytes":
        for factor, word in ((1e9, "GB"), (1e6, "MB"), (1e3, "KB")):
            if abs(value) >= factor:
                return f"{value / factor:.2f} {word}"
    digits = {"us": 2, "TB/s": 3, "TFLOP/s": 1, "%": 1, "cycles/instruction": 2}.get(unit, 0)
    return f"{value:,.{digits}f} {'µs' if unit == 'us' else unit}"


def change(was: float | None, now: float | None, unit: str) -> str:
    """Format the change of a value: in points for a percentage, otherwise in percent."""
    if was is None or now is None:
        return ""
    if was == now:
        return "same"
    if unit == "%":
        return f"{now - was:+.1f} points"
    return f"{100 * (now / was - 1):+.1f} %" if was else f"from {shown(was, unit)}"


def _row(label: str, unit: str, was: float | None, now: float | None, metric: str = "") -> list[str]:
    cells = [NOT_REPORTED if value is None else shown(value, unit) for value in (was, now)]
    return [label, cells[0] if was is not None else "", cells[1], change(was, now, unit), metric]


def _timed(record: Record, alike: bool) -> Iterator[list[str]]:
    timing = record.timing
    if timing is None or timing.ours.median_us is None:
        return
    ours, previous, method = timing.ours, timing.previous if alike else None, escape(one_line(timing.method))
    for label, unit, key in (("time", "us", "median_us"), ("rate", timing.unit, "rate")):
        yield _row(label, unit, getattr(previous, key, None), getattr(ours, key), method)
    if timing.baseline and timing.baseline.median_us:
        name = escape(one_line(timing.baseline.name))
        yield _row(f"time of {name}, the fastest baseline", "us", None, timing.baseline.median_us)
        now, was = _percent(ours), _percent(previous)
        row = _row("of its speed", "%", was, now)
        if ours.of_baseline:
            low, high = 100 * ours.of_baseline.low, 100 * ours.of_baseline.high
            row[2] += f" ({low:.1f} % to {high:.1f} %)"
        yield row


def _percent(arm: Measured | None) -> float | None:
    return 100 * arm.of_baseline.ratio if arm and arm.of_baseline else None


def _compiled(record: Record, before: Record | None) -> Iterator[list[str]]:
    earlier = before.compiled if before else []
    for i, kernel in enumerate(record.compiled):
        was = _partner(earlier, record.compiled, i)
        for label, unit, key in (
            ("registers", "registers", "registers"),
            ("spilled", "bytes", "spill_bytes"),
        ):
            old = getattr(was, key, None)
            yield _row(f"`{kernel.name}`: {label}", unit, old, getattr(kernel, key), "compiler")


def _counted(record: Record, before: Record | None) -> Iterator[list[str]]:
    earlier = (before.counters if before else None) or []
    for i, kernel in enumerate(record.counters or []):
        was = _partner(earlier, record.counters, i)
        renamed = f"`{was.name}`" if was and was.name != kernel.name else ""
        yield [f"**`{kernel.name}`**", renamed, f"{kernel.grid} x {kernel.block}", "", "ncu"]
        for label in LABELS:
            yield _counter(label, was and was.figures.get(label), kernel.figures.get(label))
        for name in list(kernel.stalls)[:STALLS_SHOWN]:
            yield _counter(f"stalled: `{name}`", was and was.stalls.get(name), kernel.stalls[name])


def _counter(label: str, was: Figure | None, now: Figure | None) -> list[str]:
    """Render the row of a counter; figures of different metrics are shown, but without their change."""
    named = now or was
    if named is None:
        return [label, "", NOT_REPORTED, "", ""]
    row = _row(label, named.unit, was and was.value, now and now.value, f"`{named.metric}`")
    if was and now and was.metric != now.metric:
        row[3], row[4] = "", f"`{now.metric}`, before `{was.metric}`"
    return row


def _partner(earlier: Sequence, now: Sequence, i: int) -> KernelCounters | None:
    """Return the corresponding kernel of the previous step: by name, else by position."""
    named = [one for one in earlier if one.name == now[i].name]
    if named:
        return named[0]
    return earlier[i] if len(earlier) == len(now) else None
