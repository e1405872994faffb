"""Plots of a survey as SVG: bandwidth against working set, matmul rates, roofline with kernels on it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from grader.measure.bench import charts
from grader.measure.bench.charts import MARKS
from grader.measure.bench.record import BenchRecord
from grader.measure.survey.curve import size_words
from grader.measure.survey.record import Bandwidth, SurveyRecord, read
from grader.measure.survey.sources import PLOTS, benches, description
from grader.system.text import one_line


def write(folder: Path) -> list[Path]:
    """Draw every plot of the survey in a folder, also from the bench records; ValueError for a bad record."""
    record, kernels = read(folder), benches(folder)
    # A name in a record may contain "$", which matplotlib would parse as a formula.
    with charts.settings("survey", **{"text.parse_math": False}):
        figures = {
            "bandwidth.svg": _bandwidth(record),
            "matmul.svg": _matmul(record),
            "roofline.svg": _roofline(record, kernels),
        }
        for name, records in PLOTS.items():
            metadata = {"Date": None, "Description": description(folder, records)}
            figures[name].savefig(folder / name, metadata=metadata)
    return [folder / name for name in PLOTS]


def other_gpu(record: SurveyRecord, bench: BenchRecord) -> str:
    """Return the GPU of a bench record if it is not the survey's: its kernels have another roofline."""
    name = bench.machine.gpu_name
    return "" if name == record.machine.gpu.name else one_line(name)


def _axes(title: str, record: SurveyRecord) -> tuple[Figure, charts.Axes]:
    return charts.new(title, f"{one_line(record.machine.gpu.name)}, {one_line(record.date)[:10]}")


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
    """Return highest, median and lowest TB/s of one working set."""
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
    ops = [op for bench in mine.values() for op in bench.ops]
    kernels = {op.name: found for op in ops if (found := charts.points(op))}
    reached = [intensity for found in kernels.values() for intensity, _ in found]
    m, bounds = record.measured, record.theory
    ends = (min([0.1, *reached]) / 2, max([*m.ridges.values(), *bounds.ridges.values(), *reached, 10.0]) * 2)
    for colour, dtype in zip(("tab:red", "tab:green"), _roofs(record), strict=False):
        rate = m.ridges[dtype] * m.dram_read
        charts.roof(axes, ends, m.dram_read, rate, color=colour, linewidth=1.4, label=f"{dtype}, measured")
        axes.plot([m.ridges[dtype]], [rate / 1e12], "|", color=colour, markersize=12)
        words = f"{m.ridges[dtype]:.3g} FLOP/B"
        axes.annotate(words, (m.ridges[dtype], rate / 1e12), (4, -10), textcoords="offset points", fontsize=7)
        if dtype in bounds.ridges and bounds.dram_bytes_per_s:
            dashed = {"color": colour, "linewidth": 0.9, "linestyle": "--"}
            charts.roof(axes, ends, bounds.dram_bytes_per_s, bounds.flops_per_s[dtype], **dashed)
    for mark, (op, found) in zip(MARKS * 8, kernels.items(), strict=False):
        xs, ys = zip(*found, strict=True)
        axes.plot(xs, [y / 1e12 for y in ys], mark, markersize=4, alpha=0.8, label=one_line(op)[:40])
    left_out = [f"{name} is of {gpu}" for name in benches if (gpu := other_gpu(record, benches[name]))]
    words = "FLOP per byte of DRAM; of row kernels those of the plain formula"
    charts.label_roofline(axes, "\n".join([words, *(f"not drawn: {why}" for why in left_out)]))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_minor_formatter(NullFormatter())
    return figure


def _roofs(record: SurveyRecord) -> Sequence[str]:
    """Return the 16-bit dtype and fp32, if they have a measured ridge."""
    half = "bf16" if "bf16" in record.measured.ridges else "fp16"
    return [dtype for dtype in (half, "fp32") if dtype in record.measured.ridges]
