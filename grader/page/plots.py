"""Where the lines and marks of the page's pictures lie; the templates draw them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import groupby

from grader.error_map import ErrorMap
from grader.timing import Round, median

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


@dataclass(frozen=True)
class MapPlot:
    """An error map: its grid, a path for each shade, as wide as a row, and where its edges lie in cells."""

    columns: int
    rows: int
    height: int  # pixels
    paths: list[tuple[int, str]]
    box: tuple[float, float, float, float]  # x, y, width, height in cells


def rounds_plot(figures: dict) -> RoundsPlot | None:
    """The plot of a timed shape; None where no round left a ratio."""
    rounds = [Round(tuple(reference), tuple(student)) for reference, student in figures["rounds"]]
    ratios = [100.0 * one.ratio(figures["overhead_us"]) for one in rounds]
    ratios = [ratio for ratio in ratios if math.isfinite(ratio)]
    if not ratios:
        return None
    low, high = figures["interval"]
    middle = median(ratios)
    wanted = {"full marks": figures.get("full_at"), "passing": figures.get("passing_at")}
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


def _words(ratios, low, high, marks) -> str:
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
        paths=_paths(found.cells),
        box=tuple(
            round(v, 3)
            for v in (left * across, top * down, (right + 1 - left) * across, (bottom + 1 - top) * down)
        ),
    )


def _paths(cells: list[str]) -> list[tuple[int, str]]:
    """For each shade the strokes that fill its cells, a stroke for those side by side."""
    strokes: dict[int, list[str]] = {}
    for y, row in enumerate(cells):
        x = 0
        for shade, same in groupby(row, key=lambda level: SHADES[int(level)]):
            width = len(list(same))
            if shade:
                strokes.setdefault(shade, []).append(f"M{x} {y}h{width}")
            x += width
    return [(shade, "".join(found)) for shade, found in sorted(strokes.items())]


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
