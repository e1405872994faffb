"""The order in which lab 3's matmul computes its tiles, and what a small cache makes of it."""

from __future__ import annotations

from collections import OrderedDict

from grader.figures.drawing import Drawing
from grader.figures.figure import Figure

SIZES = ((6, 6), (8, 8), (7, 10), (12, 12))  # tiles of c, rows by columns
GROUPS = (1, 2, 3, 4, 8)  # GROUP_M; 1 is row by row
CAPACITIES = (4, 6, 9, 12)  # strips that the model's cache holds


def order(rows: int, cols: int, group_m: int) -> list[tuple[int, int]]:
    """The place of each program's tile, (row, column) in tiles, as `place` of lab 3's solution has it."""
    per_group = group_m * cols
    places = []
    for tile in range(rows * cols):
        first = tile // per_group * group_m
        height = min(rows - first, group_m)
        places.append((first + tile % per_group % height, tile % per_group // height))
    return places


def walk(places: list[tuple[int, int]], capacity: int) -> list[dict]:
    """What a cache of `capacity` strips, least recently used out first, does for each program in turn.

    A program reads a strip of a, the rows of its tile, and a strip of b, its columns. For each program:
    whether a and b were there, and what the cache holds after it, the latest first.
    """
    cache: OrderedDict[str, None] = OrderedDict()
    steps = []
    for row, col in places:
        hits = []
        for strip in (f"a{row}", f"b{col}"):
            hits.append(strip in cache)
            cache[strip] = None
            cache.move_to_end(strip)
            if len(cache) > capacity:
                cache.popitem(last=False)
        steps.append({"hits": hits, "cache": list(reversed(cache))})
    return steps


def compute() -> dict:
    """Every order for every size; the page runs no formula for it."""
    return {
        "sizes": [
            {"rows": rows, "cols": cols, "orders": {str(g): order(rows, cols, g) for g in GROUPS}}
            for rows, cols in SIZES
        ],
        "capacities": list(CAPACITIES),
    }


def draw(data: dict) -> str:
    """Both orders of a small result with a cache that holds few strips."""
    picture = Drawing(720, 380, FIGURE.title, "Two grids of tiles with the number of the program of each.")
    del data
    return picture.svg()


FIGURE = Figure(
    title="Tile order and the L2 cache",
    lead="x",
    reading=("x",),
    compute=compute,
    draw=draw,
    height_px=760,
    screenshot_step=13,
)
