"""How near each timed shape comes to what its GPU could do at best; pure arithmetic on the record."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from grader.results import Results

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 640, 260, 46, 26, 12, 36


@dataclass(frozen=True)
class Under:
    """One timed shape under the roof: shares of what physics allows, in percent, and which limit binds."""

    exercise: str
    shape: str
    limit: str
    rate: str
    share: float
    baseline: str
    baseline_share: float


@dataclass(frozen=True)
class Dot:
    """A shape on the plot, numbered as in the list below it."""

    x: float
    y: float
    number: int
    words: str


@dataclass(frozen=True)
class Plot:
    """The roofline, with the shapes whose arithmetic was counted."""

    roof: list[tuple[float, float]]
    dots: list[Dot]
    x_ticks: list[tuple[float, str]]
    y_ticks: list[tuple[float, str]]
    words: str


def timed(results: Results) -> Iterator[tuple[str, str, dict]]:
    """Exercise, shape and figures of everything timed whose least time is known."""
    for lab in results.labs:
        for exercise in lab.exercises:
            for item in exercise.items:
                if item.figures.get("floor_us") and item.figures.get("student_us"):
                    yield exercise.name, item.name, item.figures


def under_the_roof(results: Results) -> list[Under]:
    """A row for each timed shape; none where the record has no limits of the GPU."""
    gpu = results.machine.gpu or {}
    if not gpu.get("bandwidth") or not gpu.get("peak_flops"):
        return []
    return [
        Under(
            exercise,
            shape,
            "arithmetic"
            if f["flops"] / gpu["peak_flops"] > f["bytes_moved"] / gpu["bandwidth"]
            else "memory",
            f"{f['teraflops']:.0f} TFLOP/s" if f["flops"] else f"{f['terabytes_per_s']:.2f} TB/s",
            100.0 * f["floor_us"] / f["student_us"],
            f["baseline"],
            100.0 * f["floor_us"] / f["reference_us"],
        )
        for exercise, shape, f in timed(results)
    ]


def plot(results: Results) -> Plot | None:
    """The roofline; None where nothing with counted arithmetic was timed, or no limits are known."""
    counted = [one for one in timed(results) if one[2]["flops"]]
    if not counted or not under_the_roof(results):
        return None
    gpu = results.machine.gpu
    peak, bandwidth = gpu["peak_flops"] / 1e12, gpu["bandwidth"] / 1e12
    ridge = peak / bandwidth
    intensity = [f["flops"] / f["bytes_moved"] for _, _, f in counted]
    x_range = _decades(min(1.0, *intensity), max(4 * ridge, *intensity))
    y_range = _decades(min(bandwidth, *(f["teraflops"] for _, _, f in counted)), peak)[0], 2 * peak

    def x(value: float) -> float:
        return round(LEFT + (WIDTH - LEFT - RIGHT) * _along(value, x_range), 1)

    def y(value: float) -> float:
        return round(HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * _along(value, y_range), 1)

    start = max(x_range[0], y_range[0] / bandwidth)
    return Plot(
        roof=[(x(start), y(start * bandwidth)), (x(ridge), y(peak)), (x(x_range[1]), y(peak))],
        dots=[
            Dot(x(at), y(f["teraflops"]), number, f"{name} {shape}, {f['teraflops']:.0f} TFLOP/s")
            for number, ((name, shape, f), at) in enumerate(zip(counted, intensity, strict=True), 1)
        ],
        x_ticks=_ticks(x_range, x),
        y_ticks=_ticks(y_range, y),
        words=f"Roofline: {bandwidth:.2f} TB/s up to {ridge:.0f} FLOP a byte, then {peak:.0f} TFLOP/s. "
        + "; ".join(
            f"{name} {shape} does {f['teraflops']:.0f} TFLOP/s at {at:.0f} FLOP a byte"
            for (name, shape, f), at in zip(counted, intensity, strict=True)
        ),
    )


def _decades(least: float, most: float) -> tuple[float, float]:
    return 10.0 ** math.floor(math.log10(least)), 10.0 ** math.ceil(math.log10(most) + 0.02)


def _along(value: float, ends: tuple[float, float]) -> float:
    return math.log(value / ends[0]) / math.log(ends[1] / ends[0])


def _ticks(ends: tuple[float, float], place) -> list[tuple[float, str]]:
    first, last = math.ceil(math.log10(ends[0])), math.floor(math.log10(ends[1]))
    return [(place(10.0**power), f"{10.0**power:,.6g}") for power in range(first, last + 1)]
