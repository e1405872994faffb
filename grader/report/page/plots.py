"""The plots of the page: the rounds of a timed shape, and the error map of an output."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import median

import svg

from grader.report.page.drawing import Drawing
from grader.results.error_map import ErrorMap
from grader.results.timing import Timing

WIDTH, HEIGHT = 360, 170
LEFT, RIGHT, TOP, BOTTOM = 40, 76, 10, 26  # margins, with numbers on the left, names of lines on the right
SHADES = (0, 1, 1, 1, 2, 2, 2, 3, 3, 4)  # one for each of ten levels; more than four look alike
NEAREST = 11  # pixels between the names of two lines, at least


@dataclass(frozen=True)
class Line:
    """A horizontal line: its y, its name, the y of the name, and its style."""

    y: float
    name: str
    name_y: float
    kind: str


@dataclass(frozen=True)
class RoundsPlot:
    """The ratio of each ABBA round in percent, with median, interval and the lines of the score."""

    points: list[tuple[float, float]]
    band: tuple[float, float]  # top and height of the interval
    lines: list[Line]
    ticks: list[tuple[float, str]]
    words: str

    def draw(self, shape: str, baseline: str) -> Drawing:
        """Draw the plot; `shape` and `baseline` are named as in the record."""
        right = WIDTH - RIGHT
        picture = Drawing(WIDTH, HEIGHT, f"{shape}: {self.words}")
        for y, label in self.ticks:
            picture.line(LEFT, y, right, y, "axis")
            picture.text(LEFT - 5, y + 3.5, label, anchor="end")
        picture.rect(LEFT, self.band[0], right - LEFT, self.band[1], "band")
        for line in self.lines:
            picture.line(LEFT, line.y, right, line.y, line.kind)
            picture.text(right + 4, line.name_y, line.name)
        for x, y in self.points:
            picture.circle(x, y, 2.4, "dot")
        picture.text(LEFT, HEIGHT - 6, f"rounds 1 to {len(self.points)}; percent of {baseline}")
        return picture


@dataclass(frozen=True)
class MapPlot:
    """An error map: its grid, the strokes of each shade, one row high, and its edges in cells."""

    columns: int
    rows: int
    height: int  # pixels
    strokes: dict[int, list[tuple[int, int, int]]]  # first column, row and number of columns of each
    box: tuple[float, float, float, float]  # x, y, width, height in cells
    words: str

    def draw(self) -> Drawing:
        """Draw the map; the page stretches it to its own width."""
        picture = Drawing(
            self.columns, self.rows, self.words, kinds="", style=f"height:{self.height}px",
            preserveAspectRatio=svg.PreserveAspectRatio("none"),
        )  # fmt: skip
        for shade, strokes in self.strokes.items():
            path: list[svg.PathData] = []
            for x, y, width in strokes:
                path += [svg.M(x, y + 0.5), svg.h(width)]
            picture.add(svg.Path(d=path, class_=[f"s{shade}"]))
        picture.rect(*self.box, "edge")
        return picture


def rounds_plot(timing: Timing) -> RoundsPlot | None:
    """Return the plot of a timed shape, None if no round has a finite ratio."""
    ratios = timing.ratios_percent
    if not ratios:
        return None
    low, high = timing.interval_percent
    middle = median(ratios)
    wanted = {"full marks": timing.full_at_percent, "passing": timing.passing_at_percent}
    marks = {name: at for name, at in wanted.items() if at is not None}
    least, most = min([*ratios, low, *marks.values()]), max([*ratios, high, *marks.values()])
    least, most, step = _scale(least, most)

    def y(percent: float) -> float:
        return round(TOP + (HEIGHT - TOP - BOTTOM) * (most - percent) / (most - least), 1)

    across = (WIDTH - LEFT - RIGHT) / len(ratios)
    points = [(round(LEFT + across * (k + 0.5), 1), y(ratio)) for k, ratio in enumerate(ratios)]
    lines = [(y(middle), f"median {_shown(middle)}", "median")]
    lines += [(y(at), f"{name} {at:g}", name.split()[0]) for name, at in marks.items()]
    return RoundsPlot(
        points=points,
        band=(y(high), max(round(y(low) - y(high), 1), 1.0)),
        lines=_spread(lines),
        ticks=[
            (y(least + step * k), f"{least + step * k:g}") for k in range(round((most - least) / step) + 1)
        ],
        words=_words(ratios, low, high, marks),
    )


def _words(ratios: Sequence[float], low: float, high: float, marks: Mapping[str, float]) -> str:
    said = "".join(f"; {name} at {at:g} %" for name, at in marks.items())
    ends = f"{_shown(min(ratios))} to {_shown(max(ratios))} % of the baseline's speed"
    middle = f"median {_shown(median(ratios))} %, its interval {_shown(low)} to {_shown(high)} %"
    return f"{len(ratios)} rounds from {ends}; {middle}{said}."


def _shown(percent: float) -> str:
    return f"{percent:.1f}" if percent >= 10 else f"{percent:.2f}"


def _scale(least: float, most: float) -> tuple[float, float, float]:
    """Return round ends of an axis that covers a range, and a round step between its ticks."""
    rough = max(most - least, 0.01 * most, 0.01) / 4
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * k for k in (1, 2, 5, 10) if power * k >= rough)
    low, high = step * math.floor(least / step), step * math.ceil(most / step)
    return low, high if high > low else low + step, step


def _spread(lines: list[tuple[float, str, str]]) -> list[Line]:
    """Return the lines from the top, with names moved apart so that they do not overlap."""
    found, last = [], -math.inf
    for y, name, kind in sorted(lines):
        last = max(y + 3, last + NEAREST)
        found.append(Line(y, name, round(last, 1), kind))
    return found


def map_plot(found: ErrorMap) -> MapPlot:
    """Return the plot of an error map."""
    rows, columns = len(found.cells), len(found.cells[0])
    height, width = found.extent
    top, bottom, left, right = found.box
    down, across = rows / max(height, 1), columns / max(width, 1)
    return MapPlot(
        columns=columns,
        rows=rows,
        height=max(28, min(7 * rows, 168)),
        strokes=_strokes(found.cells),
        box=(
            round(left * across, 3),
            round(top * down, 3),
            round((right + 1 - left) * across, 3),
            round((bottom + 1 - top) * down, 3),
        ),
        words=f"Error map of {found.output}: {map_words(found)}",
    )


def _strokes(cells: list[str]) -> dict[int, list[tuple[int, int, int]]]:
    """Return the strokes of each shade; neighbouring cells of a row share one stroke."""
    strokes: dict[int, list[tuple[int, int, int]]] = {}
    for y, row in enumerate(cells):
        x = 0
        for shade, same in groupby(row, key=lambda level: SHADES[int(level)]):
            width = len(list(same))
            if shade:
                strokes.setdefault(shade, []).append((x, y, width))
            x += width
    return dict(sorted(strokes.items()))


def map_words(found: ErrorMap) -> str:
    """Describe an error map for readers who cannot see it."""
    height, width = found.extent
    top, bottom, left, right = found.box
    if found.wrong == height * width:
        return "every element."
    if len(found.shape) == 1:
        return f"{found.wrong:,} of {width:,} elements, within {left} to {right}{edge(left, right, width)}."
    return (
        f"{found.wrong:,} of {height * width:,} elements, within rows {top} to {bottom} of {height:,} and "
        f"columns {left} to {right} of {width:,}{edge(left, right, width)}."
    )


def edge(first: int, last: int, size: int) -> str:
    """If the wrong elements reach the end, say which power of two their start is a multiple of."""
    block = first & -first
    if last != size - 1 or block < 8:
        return ""
    return f"; {first} is {first // block} x {block}, so a block may start there"
