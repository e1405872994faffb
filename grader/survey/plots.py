"""Figures of a survey as SVG: bandwidth against working set, matmul rates, roofline with kernels on it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from grader.bench.record import BenchRecord
from grader.outcome import one_line
from grader.survey.curve import size_words
from grader.survey.record import Bandwidth, SurveyRecord, read
from grader.survey.sources import PLOTS, benches, description

MARKS = "osD^vPX*"
# Text is shown as it is: a name in a record is no formula. The same records give the same bytes.
SETTINGS = {"svg.hashsalt": "survey", "svg.fonttype": "none", "font.size": 9, "text.parse_math": False}
Point = tuple[float, float]  # FLOP per byte, FLOP/s


def write(folder: Path) -> list[Path]:
    """Every plot of the survey in a folder, with the bench records beside it; ValueError for a bad record."""
    record, kernels = read(folder), benches(folder)
    with mpl.rc_context(SETTINGS):
        figures = {
            "bandwidth.svg": _bandwidth(record),
            "matmul.svg": _matmul(record),
            "roofline.svg": _roofline(record, kernels),
        }
        for name, records in PLOTS.items():
            metadata = {"Date": None, "Description": description(folder, records)}
            figures[name].savefig(folder / name, metadata=metadata)
    return [folder / name for name in PLOTS]


def points(record: BenchRecord) -> dict[str, list[Point]]:
    """Where our fastest arm lies on the roofline at each size, by operation."""
    found: dict[str, list[Point]] = {}
    for op in record.ops:
        for one in op.sizes:
            ours = [arm for name, arm in one.arms.items() if name.split()[:1] == ["ours"]]
            times = [arm.median_us for arm in ours if arm.median_us and arm.median_us > 0]
            if times and one.operations > 0 and one.bytes_moved > 0:
                point = (one.operations / one.bytes_moved, 1e6 * one.operations / min(times))
                found.setdefault(op.name, []).append(point)
    return found


def other_gpu(record: SurveyRecord, bench: BenchRecord) -> str:
    """The GPU of a bench record where it is another one than the survey's; its kernels meet other roofs."""
    name = str((bench.machine.gpu or {}).get("name", "no GPU"))
    return "" if name == record.machine.gpu["name"] else one_line(name)


def _axes(title: str, record: SurveyRecord) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(7.2, 4.4), layout="constrained")
    axes = figure.subplots()
    gpu, date = one_line(record.machine.gpu["name"]), one_line(record.date)[:10]
    axes.set_title(f"{title}\n{gpu}, {date}", fontsize=9)
    axes.grid(visible=True, which="major", alpha=0.3)
    return figure, axes


def _bandwidth(record: SurveyRecord) -> Figure:
    figure, axes = _axes("Bandwidth against working set, median with least and most", record)
    m, l2_bytes, limit = record.measured, record.attributes.l2_bytes, record.theory.dram_bytes_per_s
    for mark, name, curve in (("o", "reads", m.reads), ("s", "copies", m.copies)):
        sizes = [one.working_set_bytes for one in curve]
        most, rates, least = zip(*map(_terabytes, curve), strict=True)
        (line,) = axes.plot(sizes, rates, marker=mark, markersize=3, linewidth=1.2, label=name)
        axes.fill_between(sizes, least, most, alpha=0.25, color=line.get_color(), linewidth=0)
    one = m.library_copy
    axes.plot([one.working_set_bytes], [one.bytes_per_s / 1e12], "k+", markersize=8, label="copy_ of torch")
    if l2_bytes:
        axes.axvline(l2_bytes, color="gray", linewidth=0.8, label=f"L2 cache, {size_words(l2_bytes)}")
    if limit:
        axes.axhline(limit / 1e12, color="black", linewidth=0.8, linestyle="--", label="DRAM in theory")
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(LogLocator(base=4, numticks=20))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda size, _: size_words(size)))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.tick_params(axis="x", labelrotation=30)
    axes.set_xlabel("working set; of a copy its source and its target")
    axes.set_ylabel("TB/s, bytes read and written")
    axes.set_ylim(bottom=0)
    axes.legend(fontsize=7)
    return figure


def _terabytes(one: Bandwidth) -> Iterator[float]:
    """Most, median and least TB/s of one working set."""
    return (one.bytes_moved / us / 1e6 for us in one.timed.spread_us)


def _matmul(record: SurveyRecord) -> Figure:
    figure, axes = _axes("Matmul of square matrices, measured beside theory", record)
    rates = {one.dtype: (one.flops_per_s or 0.0) / 1e12 for one in record.measured.matmul}
    bounds = [record.theory.flops_per_s.get(dtype, 0.0) / 1e12 for dtype in rates]
    places = range(len(rates))
    measured = axes.bar([at - 0.2 for at in places], rates.values(), 0.4, label="measured")
    axes.bar(
        [at + 0.2 for at in places], bounds, 0.4, label="theory: dense, at the highest SM clock",
        fill=False, linestyle="--",
    )  # fmt: skip
    statuses = [one.status for one in record.measured.matmul]
    shown = [
        f"{rate:.3g}" if status == "ok" else status.replace(" on this", "\non this")
        for rate, status in zip(rates.values(), statuses, strict=True)
    ]
    axes.bar_label(measured, shown, fontsize=7, padding=1)
    axes.set_xticks(list(places), list(rates))
    axes.set_ylabel("TFLOP/s; of int8 tera-operations per second")
    axes.legend(fontsize=7)
    return figure


def _roofline(record: SurveyRecord, benches: Mapping[str, BenchRecord]) -> Figure:
    figure, axes = _axes("Roofline: roofs measured (solid) and in theory (dashed)", record)
    mine = {name: bench for name, bench in benches.items() if not other_gpu(record, bench)}
    kernels = {op: found for bench in mine.values() for op, found in points(bench).items()}
    reached = [intensity for found in kernels.values() for intensity, _ in found]
    m, bounds = record.measured, record.theory
    ends = (min([0.1, *reached]) / 2, max([*m.ridges.values(), *bounds.ridges.values(), *reached, 10.0]) * 2)
    for colour, dtype in zip(("tab:red", "tab:green"), _roofs(record), strict=False):
        rate = m.ridges[dtype] * m.dram_read
        _roof(axes, ends, m.dram_read, rate, color=colour, linewidth=1.4, label=f"{dtype}, measured")
        axes.plot([m.ridges[dtype]], [rate / 1e12], "|", color=colour, markersize=12)
        words = f"{m.ridges[dtype]:.3g} FLOP/B"
        axes.annotate(words, (m.ridges[dtype], rate / 1e12), (4, -10), textcoords="offset points", fontsize=7)
        if dtype in bounds.ridges and bounds.dram_bytes_per_s:
            dashed = {"color": colour, "linewidth": 0.9, "linestyle": "--"}
            _roof(axes, ends, bounds.dram_bytes_per_s, bounds.flops_per_s[dtype], **dashed)
    for mark, (op, found) in zip(MARKS * 8, kernels.items(), strict=False):
        xs, ys = zip(*found, strict=True)
        axes.plot(xs, [y / 1e12 for y in ys], mark, markersize=4, alpha=0.8, label=one_line(op)[:40])
    left_out = [f"{name} is of {gpu}" for name in benches if (gpu := other_gpu(record, benches[name]))]
    axes.set_xscale("log")
    axes.set_yscale("log")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_minor_formatter(NullFormatter())
    words = "FLOP per byte of DRAM; of row kernels those of the plain formula"
    axes.set_xlabel("\n".join([words, *(f"not drawn: {why}" for why in left_out)]))
    axes.set_ylabel("TFLOP/s")
    axes.legend(fontsize=7)
    return figure


def _roofs(record: SurveyRecord) -> Sequence[str]:
    """The 16-bit dtype and fp32, of those that have a measured ridge."""
    half = "bf16" if "bf16" in record.measured.ridges else "fp16"
    return [dtype for dtype in (half, "fp32") if dtype in record.measured.ridges]


def _roof(axes: Axes, ends: Point, bandwidth: float, rate: float, **style) -> None:
    ridge = rate / bandwidth
    xs = [ends[0], ridge, max(ends[1], ridge)]
    axes.plot(xs, [min(rate, bandwidth * x) / 1e12 for x in xs], **style)
