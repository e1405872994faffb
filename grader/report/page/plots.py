"""The plots of the page: the rounds of a timed shape, and where an output is wrong."""

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
LEFT, RIGHT, TOP, BOTTOM = 40, 76, 10, 26  # margins: numbers on the left, names of lines on the right
SHADES = (0, 1, 1, 1, 2, 2, 2, 3, 3, 4)  # of the ten levels: an eye tells four apart
NEAREST = 11  # between the names of two lines


@dataclass(frozen=True)
class Line:
    """A horizontal line: its height, its name, where the name stands, and its style."""

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
        """The picture; `shape` and `baseline` are called what the record calls them."""
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
    """An error map: its grid, the strokes of each shade, a row high, and where its edges lie in cells."""

    columns: int
    rows: int
    height: int  # pixels
    strokes: dict[int, list[tuple[int, int, int]]]  # column, row and columns of each
    box: tuple[float, float, float, float]  # x, y, width, height in cells
    words: str

    def draw(self) -> Drawing:
        """The picture, which the page stretches over its own width."""
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
    """The plot of a timed shape; None where no round left a ratio."""
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
    """Round ends around a range, and a round step that divides it into few parts."""
    rough = max(most - least, 0.01 * most, 0.01) / 4
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * k for k in (1, 2, 5, 10) if power * k >= rough)
    low, high = step * math.floor(least / step), step * math.ceil(most / step)
    return low, high if high > low else low + step, step


def _spread(lines: list[tuple[float, str, str]]) -> list[Line]:
    """The lines from the top, their names moved apart where they would touch."""
    found, last = [], -math.inf
    for y, name, kind in sorted(lines):
        last = max(y + 3, last + NEAREST)
        found.append(Line(y, name, round(last, 1), kind))
    return found


def map_plot(found: ErrorMap) -> MapPlot:
    """The picture of an error map."""
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
    """For each shade the strokes that fill its cells, a stroke for those side by side."""
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
    """What an error map shows, for who does not see it."""
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
    """Where wrong elements reach the end, which block their first place is a multiple of."""
    block = first & -first
    if last != size - 1 or block < 8:
        return ""
    return f"; {first} is {first // block} x {block}, where a block may begin"
