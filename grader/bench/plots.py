"""Figures of bench records as PNG and SVG: rate against size for each operation, and one roofline."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from grader.bench.record import AGAIN, BenchRecord, OpRecord, SizeRecord

MARKS = "osD^vPX*"
SETTINGS = {
    "svg.hashsalt": "bench",
    "svg.fonttype": "none",
    "font.size": 9,
}  # the same record, the same bytes


def write(
    records: Sequence[BenchRecord],
    folder: Path,
    kinds: Sequence[str] = (".png", ".svg"),
    description: str | None = None,
) -> list[Path]:
    """A file of each kind for each operation with a figure, and a roofline for the operations of all records,
    which are of one GPU; their paths. `description` goes into the metadata of SVG files.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context(SETTINGS):
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
    """Arms with a figure somewhere; the A/A test is no arm of its own here."""
    found = (name for one in op.sizes for name, arm in one.arms.items() if arm.rate is not None)
    return [name for name in dict.fromkeys(found) if not name.endswith(AGAIN)]


def _along(one: SizeRecord) -> int:
    """What the size axis shows: the columns of rows, else the last side."""
    return one.size.get("cols", list(one.size.values())[-1])


def _machine(record: BenchRecord) -> str:
    gpu = record.machine.gpu
    return f"{gpu['name'] if gpu else 'no GPU'}, torch {record.machine.torch}, triton {record.machine.triton}"


def _axes(title: str, record: BenchRecord):
    figure = Figure(figsize=(7.2, 4.4), layout="constrained")
    axes = figure.subplots()
    axes.set_title(f"{title}\n{_machine(record)}, {record.date[:10]}", fontsize=9)
    axes.grid(visible=True, which="major", alpha=0.3)
    return figure, axes


def _rates(op: OpRecord, record: BenchRecord) -> Figure:
    figure, axes = _axes(f"{op.name}, {op.dtype}", record)
    # By work where sizes are no row of one axis: a Linear has three sides.
    apart = len({_along(one) for one in op.sizes}) == len(op.sizes)
    sizes = sorted(op.sizes, key=_along if apart else lambda one: one.operations)
    ticks = [f"{_along(one)}" if apart else "x".join(map(str, one.size.values())) for one in sizes]
    for mark, name in zip(MARKS * 3, _names(op), strict=False):
        ours = name.split()[0] == "ours"
        rates = [one.arms[name].rate if name in one.arms else None for one in sizes]
        axes.plot(
            ticks, [float("nan") if rate is None else rate for rate in rates], marker=mark, markersize=4,
            linewidth=2.2 if ours else 1.1, linestyle=":" if name == "copy" else "-", label=name,
            zorder=3 if ours else 2,
        )  # fmt: skip
    limit = _peak(record, "peak_flops" if op.unit == "TFLOP/s" else "bandwidth")
    if limit:
        axes.axhline(limit, color="black", linewidth=0.8, linestyle="--", label="peak of the GPU")
    axes.set_xlabel("columns" if "cols" in op.sizes[0].size else "size")
    axes.set_ylabel(op.unit)
    axes.set_ylim(bottom=0)
    # Beside the axes where it would hide the curves.
    many = len(_names(op)) > 8
    axes.legend(fontsize=7, **({"loc": "center left", "bbox_to_anchor": (1.0, 0.5)} if many else {}))
    return figure


def _peak(record: BenchRecord, key: str) -> float:
    """Peak rate in TB/s or TFLOP/s; 0 where the record has none."""
    return (record.machine.gpu or {}).get(key, 0.0) / 1e12


def _roofline(records: Sequence[BenchRecord]) -> Figure:
    """Our fastest arm of each size: FLOP/s over FLOP per byte, below what bandwidth and arithmetic allow."""
    figure, axes = _axes("Roofline, ours", records[0])
    reached = [0.1, 10.0]
    for mark, op in zip(MARKS * 3, [op for record in records for op in record.ops], strict=False):
        points = []
        for one in op.sizes:
            times = [
                arm.median_us for name, arm in one.arms.items() if name.split()[0] == "ours" and arm.median_us
            ]
            if times:
                points.append((one.operations / one.bytes_moved, one.operations / min(times) / 1e6))
        if points:
            axes.plot(*zip(*points, strict=True), mark, markersize=5, label=op.name, alpha=0.8)
            reached += [intensity for intensity, _ in points]
    bandwidth, flops = _peak(records[0], "bandwidth"), _peak(records[0], "peak_flops")
    if bandwidth and flops:
        ridge = flops / bandwidth
        ends = [min(reached) / 2, ridge, max(*reached, ridge) * 2]
        axes.plot(ends, [min(flops, bandwidth * x) for x in ends], color="black", linewidth=1.0)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("FLOP per byte; of row kernels those of the plain formula")
    axes.set_ylabel("TFLOP/s")
    axes.legend(fontsize=7)
    return figure
