"""What the charts of bench and survey share: their axes, their marks, a roofline; drawn by matplotlib."""

from __future__ import annotations

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from grader.measure.bench.record import OpRecord

MARKS = "osD^vPX*"
Point = tuple[float, float]  # FLOP per byte, FLOP/s


def settings(salt: str, **more):
    """A context in which the same record gives the same bytes; `more` is as in matplotlib."""
    return mpl.rc_context({"svg.hashsalt": salt, "svg.fonttype": "none", "font.size": 9, **more})


def new(title: str, where: str) -> tuple[Figure, Axes]:
    """A figure with a grid; `where` says below the title on what and when it was measured."""
    figure = Figure(figsize=(7.2, 4.4), layout="constrained")
    axes = figure.subplots()
    axes.set_title(f"{title}\n{where}", fontsize=9)
    axes.grid(visible=True, which="major", alpha=0.3)
    return figure, axes


def points(op: OpRecord) -> list[Point]:
    """Where our fastest arm of each size lies on a roofline."""
    sizes = [one for one in op.sizes if one.fastest_us and one.fastest_us > 0]
    return [
        (one.operations / one.bytes_moved, 1e6 * one.operations / one.fastest_us)
        for one in sizes
        if one.operations > 0 and one.bytes_moved > 0
    ]


def roof(axes: Axes, ends: Point, bandwidth: float, rate: float, **style) -> None:
    """The least of bandwidth, in bytes/s, times intensity and of a rate, in FLOP/s, from end to end."""
    ridge = rate / bandwidth
    xs = [ends[0], ridge, max(ends[1], ridge)]
    axes.plot(xs, [min(rate, bandwidth * x) / 1e12 for x in xs], **style)


def label_roofline(axes: Axes, intensity: str) -> None:
    """Logarithmic axes with their names."""
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel(intensity)
    axes.set_ylabel("TFLOP/s")
    axes.legend(fontsize=7)
