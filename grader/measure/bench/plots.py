"""Plots of bench records as PNG and SVG: rate against size for each operation, and one roofline."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from grader.measure.bench import charts
from grader.measure.bench.charts import MARKS
from grader.measure.bench.record import AGAIN, BenchRecord, OpRecord, SizeRecord, is_ours


def write(
    records: Sequence[BenchRecord],
    folder: Path,
    kinds: Sequence[str] = (".png", ".svg"),
    description: str | None = None,
) -> list[Path]:
    """Draw each operation that has a rate, and one roofline for all records; return the paths.

    All records must be of one GPU. `kinds` are the file types; `description` goes into the metadata of SVG
    files.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with charts.settings("bench"):
        figures = {op.name: _rates(op, record) for record in records for op in record.ops if _names(op)}
        if figures:
            figures["roofline"] = _roofline(records)
        paths = [(figure, folder / f"{name}{kind}") for name, figure in figures.items() for kind in kinds]
        return [_save(figure, path, description) for figure, path in paths]


def _save(figure: Figure, path: Path, description: str | None) -> Path:
    metadata = {"Date": None} | ({"Description": description} if description else {})
    figure.savefig(path, **({"metadata": metadata} if path.suffix == ".svg" else {"dpi": 150}))
    return path


def _names(op: OpRecord) -> list[str]:
    """Return the arms that have a rate at some size, without the A/A test."""
    found = (name for one in op.sizes for name, arm in one.arms.items() if arm.rate is not None)
    return [name for name in dict.fromkeys(found) if not name.endswith(AGAIN)]


def _along(one: SizeRecord) -> int:
    """Return the value for the size axis: the columns, else the last side."""
    return one.size.get("cols", list(one.size.values())[-1])


def _axes(title: str, record: BenchRecord):
    machine, date = record.machine, record.date[:10]
    return charts.new(title, f"{machine.gpu_name}, torch {machine.torch}, triton {machine.triton}, {date}")


def _rates(op: OpRecord, record: BenchRecord) -> Figure:
    figure, axes = _axes(f"{op.name}, {op.dtype}", record)
    # Sorted by work if one axis does not tell the sizes apart: a Linear has three sides.
    apart = len({_along(one) for one in op.sizes}) == len(op.sizes)
    sizes = sorted(op.sizes, key=_along if apart else lambda one: one.operations)
    ticks = [f"{_along(one)}" if apart else "x".join(map(str, one.size.values())) for one in sizes]
    for mark, name in zip(MARKS * 3, _names(op), strict=False):
        ours = is_ours(name)
        rates = [one.arms[name].rate if name in one.arms else None for one in sizes]
        axes.plot(
            ticks, [float("nan") if rate is None else rate for rate in rates], marker=mark, markersize=4,
            linewidth=2.2 if ours else 1.1, linestyle=":" if name == "copy" else "-", label=name,
            zorder=3 if ours else 2,
        )  # fmt: skip
    limit = _peak(record, "peak_flops" if op.unit == "TFLOP/s" else "bandwidth")
    if limit:
        axes.axhline(limit / 1e12, color="black", linewidth=0.8, linestyle="--", label="peak of the GPU")
    axes.set_xlabel("columns" if "cols" in op.sizes[0].size else "size")
    axes.set_ylabel(op.unit)
    axes.set_ylim(bottom=0)
    # Beside the axes if it would hide the curves.
    many = len(_names(op)) > 8
    axes.legend(fontsize=7, **({"loc": "center left", "bbox_to_anchor": (1.0, 0.5)} if many else {}))
    return figure


def _peak(record: BenchRecord, key: str) -> float:
    """Return the peak rate in bytes/s or FLOP/s; 0 if the record has none."""
    return getattr(record.machine.gpu, key, 0.0)


def _roofline(records: Sequence[BenchRecord]) -> Figure:
    """Draw our fastest arm of each size, FLOP/s over FLOP per byte, below the limits of the GPU."""
    figure, axes = _axes("Roofline, ours", records[0])
    reached = [0.1, 10.0]
    for mark, op in zip(MARKS * 3, [op for record in records for op in record.ops], strict=False):
        points = charts.points(op)
        if points:
            xs, ys = zip(*points, strict=True)
            axes.plot(xs, [y / 1e12 for y in ys], mark, markersize=5, label=op.name, alpha=0.8)
            reached += xs
    bandwidth, flops = _peak(records[0], "bandwidth"), _peak(records[0], "peak_flops")
    if bandwidth and flops:
        ends = (min(reached) / 2, max(*reached, flops / bandwidth) * 2)
        charts.roof(axes, ends, bandwidth, flops, color="black", linewidth=1.0)
    charts.label_roofline(axes, "FLOP per byte; of row kernels those of the plain formula")
    return figure
