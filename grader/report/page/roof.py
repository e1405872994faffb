"""The roofline: how close each timed shape comes to the limits of its GPU, computed from the record."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from grader.report.page.drawing import Drawing
from grader.results.models import Results
from grader.results.timing import Timing

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 640, 260, 46, 26, 12, 36


@dataclass(frozen=True)
class Under:
    """One timed shape below the roofline: percent of the hardware limit, and which limit applies."""

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
    """The roofline plot, with the shapes whose FLOPs are known."""

    roof: list[tuple[float, float]]
    dots: list[Dot]
    x_ticks: list[tuple[float, str]]
    y_ticks: list[tuple[float, str]]
    words: str

    def draw(self) -> Drawing:
        """Draw the plot."""
        right, low = WIDTH - RIGHT, HEIGHT - BOTTOM
        picture = Drawing(WIDTH, HEIGHT, self.words, style="max-width:46rem")
        for x, label in self.x_ticks:
            picture.line(x, TOP, x, low, "axis")
            picture.text(x, low + 14, label, anchor="middle")
        for y, label in self.y_ticks:
            picture.line(LEFT, y, right, y, "axis")
            picture.text(LEFT - 5, y + 3.5, label, anchor="end")
        picture.polyline(self.roof, "roof")
        for at, dot in enumerate(self.dots):
            picture.circle(dot.x, dot.y, 4, "dot", dot.words)
            picture.text(dot.x + 7, dot.y + 4 + 11 * (at % 2), str(dot.number))
        picture.text(right, HEIGHT - 6, "FLOP/byte; vertical: TFLOP/s", anchor="end")
        return picture


def timed(results: Results) -> Iterator[tuple[str, str, Timing]]:
    """Yield exercise, shape and timing of every timed item whose shortest possible time is known."""
    for _, exercise, item in results.every_item():
        if item.timing and item.timing.floor_us and item.timing.student_us:
            yield exercise.name, item.name, item.timing


def under_the_roof(results: Results) -> list[Under]:
    """Return a row for each timed shape; no rows if the record has no limits of the GPU."""
    gpu = results.machine.gpu
    if gpu is None or not gpu.bandwidth or not gpu.peak_flops:
        return []
    return [
        Under(
            exercise,
            shape,
            "arithmetic" if timing.flops / gpu.peak_flops > timing.bytes_moved / gpu.bandwidth else "memory",
            timing.rate,
            100.0 * timing.floor_us / timing.student_us,
            timing.baseline,
            100.0 * timing.floor_us / timing.reference_us,
        )
        for exercise, shape, timing in timed(results)
    ]


def plot(results: Results) -> Plot | None:
    """Return the roofline plot; None if no timed shape has known FLOPs, or the limits are unknown."""
    counted = [one for one in timed(results) if one[2].flops]
    gpu = results.machine.gpu
    if gpu is None or not counted or not under_the_roof(results):
        return None
    peak, bandwidth = gpu.peak_flops / 1e12, gpu.bandwidth / 1e12
    ridge = peak / bandwidth
    intensity = [timing.flops / timing.bytes_moved for _, _, timing in counted]
    x_range = _decades(min(1.0, *intensity), max(4 * ridge, *intensity))
    rates = [timing.teraflops_per_s for _, _, timing in counted]
    y_range = _decades(min(bandwidth, *rates), peak)[0], 2 * peak

    def x(value: float) -> float:
        return round(LEFT + (WIDTH - LEFT - RIGHT) * _along(value, x_range), 1)

    def y(value: float) -> float:
        return round(HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * _along(value, y_range), 1)

    start = max(x_range[0], y_range[0] / bandwidth)
    return Plot(
        roof=[(x(start), y(start * bandwidth)), (x(ridge), y(peak)), (x(x_range[1]), y(peak))],
        dots=[
            Dot(x(at), y(timing.teraflops_per_s), number, f"{name} {shape}, {timing.rate}")
            for number, ((name, shape, timing), at) in enumerate(zip(counted, intensity, strict=True), 1)
        ],
        x_ticks=_ticks(x_range, x),
        y_ticks=_ticks(y_range, y),
        words=f"Roofline: {bandwidth:.2f} TB/s up to {ridge:.0f} FLOP/byte, then {peak:.0f} TFLOP/s. "
        + "; ".join(
            f"{name} {shape} does {timing.rate} at {at:.0f} FLOP/byte"
            for (name, shape, timing), at in zip(counted, intensity, strict=True)
        ),
    )


def _decades(least: float, most: float) -> tuple[float, float]:
    return 10.0 ** math.floor(math.log10(least)), 10.0 ** math.ceil(math.log10(most) + 0.02)


def _along(value: float, ends: tuple[float, float]) -> float:
    return math.log(value / ends[0]) / math.log(ends[1] / ends[0])


def _ticks(ends: tuple[float, float], place: Callable[[float], float]) -> list[tuple[float, str]]:
    first, last = math.ceil(math.log10(ends[0])), math.floor(math.log10(ends[1]))
    return [(place(10.0**power), f"{10.0**power:,.6g}") for power in range(first, last + 1)]
