"""Axes, marks and roofline that the plots of bench and survey share; drawn by matplotlib."""

from __future__ import annotations

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from grader.measure.bench.record import OpRecord

MARKS = "osD^vPX*"
Point = tuple[float, float]  # FLOP per byte, FLOP/s


def settings(salt: str, **more):
    """Return an rc context in which the same record gives the same bytes; `more` are other rcParams."""
    return mpl.rc_context({"svg.hashsalt": salt, "svg.fonttype": "none", "font.size": 9, **more})


def new(title: str, where: str) -> tuple[Figure, Axes]:
    """Return a figure with a grid; `where`, shown below the title, names machine and date."""
    figure = Figure(figsize=(7.2, 4.4), layout="constrained")
    axes = figure.subplots()
    axes.set_title(f"{title}\n{where}", fontsize=9)
    axes.grid(visible=True, which="major", alpha=0.3)
    return figure, axes


def points(op: OpRecord) -> list[Point]:
    """Return the place of our fastest arm of each size on a roofline."""
    sizes = [one for one in op.sizes if one.fastest_us and one.fastest_us > 0]
    return [
        (one.operations / one.bytes_moved, 1e6 * one.operations / one.fastest_us)
        for one in sizes
        if one.operations > 0 and one.bytes_moved > 0
    ]


def roof(axes: Axes, ends: Point, bandwidth: float, rate: float, **style) -> None:
    """Draw min(bandwidth * intensity, rate) between two intensities; in bytes/s, FLOP/byte and FLOP/s."""
    ridge = rate / bandwidth
    xs = [ends[0], ridge, max(ends[1], ridge)]
    axes.plot(xs, [min(rate, bandwidth * x) / 1e12 for x in xs], **style)


def label_roofline(axes: Axes, intensity: str) -> None:
    """Make the axes logarithmic and label them."""
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel(intensity)
    axes.set_ylabel("TFLOP/s")
    axes.legend(fontsize=7)
