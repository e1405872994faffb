"""The order in which lab 3's matmul computes its tiles, and the misses of a small cache."""

from __future__ import annotations

from collections import OrderedDict

from grader.measure.kernel_log import store
from grader.site.figures.drawing import Drawing
from grader.site.figures.figure import Figure, measured
from grader.site.figures.records import CAPSTONE

SIZES = ((6, 6), (8, 8), (7, 10), (12, 12))  # tiles of c, rows by columns
GROUPS = (1, 2, 3, 4, 8)  # GROUP_M; 1 is row by row
CAPACITIES = (4, 6, 9, 12)  # strips that the model's cache holds
HIT_RATE = "L2 hit rate"  # the name of Nsight Compute's counter in a record


def order(rows: int, cols: int, group_m: int) -> list[tuple[int, int]]:
    """Return the tile of each program, (row, column) in tiles, in the order of `place` in lab 3's solution.

    Students have this file, and lab 3 asks for a formula from a program's number to its tile. Loops compute
    the order here, so this function does not contain that formula.
    """
    groups = [range(first, min(first + group_m, rows)) for first in range(0, rows, group_m)]
    return [(row, col) for group in groups for col in range(cols) for row in group]


def misses(places: list[tuple[int, int]], capacity: int) -> str:
    """Return the misses of an LRU cache of `capacity` strips, one digit for each program in turn.

    A program reads a strip of a, the rows of its tile, and a strip of b, its columns. The digit is 1 if the
    strip of a missed, plus 2 if the strip of b missed.
    """
    cache: OrderedDict[tuple[str, int], None] = OrderedDict()
    digits = []
    for row, col in places:
        digit = 0
        for strip, weight in ((("a", row), 1), (("b", col), 2)):
            digit += weight * (strip not in cache)
            cache[strip] = None
            cache.move_to_end(strip)
            if len(cache) > capacity:
                cache.popitem(last=False)
        digits.append(str(digit))
    return "".join(digits)


def fetched(digits: str) -> int:
    """Return the number of strips fetched from HBM."""
    return sum((digit in "13") + (digit in "23") for digit in digits)


def compute() -> dict:
    """Return every order of every size with the misses of every cache; the page itself computes nothing."""
    sizes = []
    for rows, cols in SIZES:
        orders = {str(group): order(rows, cols, group) for group in GROUPS}
        lacked = {
            group: {str(capacity): misses(places, capacity) for capacity in CAPACITIES}
            for group, places in orders.items()
        }
        sizes.append({"rows": rows, "cols": cols, "orders": orders, "misses": lacked})
    return {"sizes": sizes, "groups": GROUPS, "capacities": CAPACITIES} | _measured()


def _measured() -> dict:
    """Return the measured L2 hit rates of the capstone's CUDA matmuls, with their records."""
    found, machine, sizes = [], "", set()
    for step in store.steps(CAPSTONE):
        record, path = step.record, step.folder / store.RECORD
        if record.op != "cuda_matmul":
            continue
        for kernel in record.counters or []:
            rate = kernel.figures[HIT_RATE]
            found.append({"file": record.name, "rate": measured(rate.value, rate.unit, path)})
            machine = record.machine.gpu.name
            sizes.add(tuple(record.size.values()))
    if not found:
        raise ValueError(f"{CAPSTONE / store.FOLDER}: no record of a matmul has the counter {HIT_RATE}")
    words = " and ".join(" by ".join(map(str, size)) for size in sorted(sizes))
    caveat = (
        f"The capstone's CUDA matmuls, {words}. They differ in more than their order of tiles, and"
        " every load is counted, also those that read a tile once more: a high rate makes no fast kernel."
    )
    return {"measured": found, "machine": machine, "caveat": caveat}


def draw(data: dict) -> str:
    """Draw both orders of the second size, with the number of strips that a cache of six fetches."""
    size, group, capacity = data["sizes"][1], "4", "6"
    words = f"Numbers are programs; {size['rows']} by {size['cols']} tiles, a cache of {capacity} strips."
    picture = Drawing(720, 412, FIGURE.title, words)
    for left, one, title in ((20, "1", "Row by row"), (380, group, f"In groups of {group} rows")):
        places, lacked = size["orders"][one], size["misses"][one][capacity]
        picture.text(left, 32, title, "f-ink strong")
        for program, (row, col) in enumerate(places):
            x, y = left + 40 * col, 48 + 40 * row
            first_group = program < int(group) * size["cols"]
            picture.rect(x, y, 38, 38, "f-accent-fill" if first_group else "f-blank", 4)
            picture.text(x + 19, y + 24, str(program), "f-ink mid small")
        total = 2 * len(places)
        picture.text(left, 392, f"{fetched(lacked)} of {total} strips read come from HBM", "f-off strong")
    return picture.svg()


FIGURE = Figure(
    title="Tile order and the L2 cache",
    lead="A program computes a tile of c = a @ b and reads a strip of a, its rows, and one of b, its columns."
    " The order of the tiles decides how often a strip is still in the cache.",
    reading=(
        "Left, the programs walk along the rows of c; right, through GROUP_M rows at a time, by columns."
        " The order is that of place() in solutions/lab3_autotuned_matmul/autotuned_matmul.py.",
        "Green strips are in the cache, red ones have just been fetched from HBM.",
        "The cache is a model, not a measurement: programs run one after the other, a strip is fetched whole,"
        " and the least recently used one makes room. On a GPU many programs run at once.",
    ),
    compute=compute,
    draw=draw,
    height_px=940,
    screenshot_step=27,
)
