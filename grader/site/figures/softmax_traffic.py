"""Memory traffic of naive, fused and online softmax, for row lengths and block sizes."""

from __future__ import annotations

from dataclasses import asdict

from grader.course import catalog
from grader.course.spec import Case
from grader.site.figures import softmax_counts as counts
from grader.site.figures.drawing import Drawing
from grader.site.figures.figure import Figure

ROWS = 4096
COLS = (1000, 4096, 16384)
BLOCKS = (1024, 2048, 8192)
DTYPES = {"fp32": 4, "fp16": 2}  # bytes per element
VARIANTS = {
    "naive": ("Naive: five kernels", counts.naive, ("x", "m", "z", "e", "d", "y")),
    "fused": ("Fused: the row stays on chip", counts.fused, ("x", "y")),
    "online": ("Online: a block stays on chip", counts.online, ("x", "y")),
}
KERNELS = {  # the kernels that have these counts
    "naive": "the same steps as PyTorch's amax, -, exp, sum and /, one kernel each",
    "fused": "solutions/lab2_online_softmax/variants/short_rows_have_their_own_kernel.py, one block a row",
    "online": "solutions/lab2_online_softmax/online_softmax.py",
}


def compute() -> dict:
    """Return all moves for every row length and block; counts are elements of one row."""
    return {
        "rows": ROWS,
        "on_chip_bytes": counts.ON_CHIP_BYTES,
        "dtypes": DTYPES,
        "cols": COLS,
        "blocks": BLOCKS,
        "variants": [
            {"name": name, "title": title, "arrays": arrays, "kernel": KERNELS[name]}
            for name, (title, _, arrays) in VARIANTS.items()
        ],
        "one_number": counts.ONE_NUMBER,
        "cases": {f"{cols} {block}": _case(cols, block) for cols in COLS for block in BLOCKS},
        "least": {f"{cols} {dtype}": least_bytes(ROWS, cols, dtype) for cols in COLS for dtype in DTYPES},
    }


def least_bytes(rows: int, cols: int, dtype: str) -> int:
    """Return the minimum bytes that softmax moves, as lab 2 counts them for its bandwidth."""
    (entry,) = (one for one in catalog.find() if one.number == 2)
    (exercise,) = (one for one in entry.lab.exercises if one.name == "softmax_forward")
    return exercise.speed.bytes_moved(Case({"rows": rows, "cols": cols}, dtype))


def _case(cols: int, block: int) -> dict:
    found = {}
    for name, (_, moves_of, _arrays) in VARIANTS.items():
        moves = moves_of(cols, block)
        found[name] = {"moves": [asdict(move) for move in moves], "totals": counts.totals(moves)}
    return {"tiles": counts.tiles(cols, block), "variants": found}


def draw(data: dict) -> str:
    """Draw the bytes that each variant moves for one size."""
    cols, block, dtype = data["cols"][1], data["blocks"][0], "fp32"
    case, item_bytes = data["cases"][f"{cols} {block}"], data["dtypes"][dtype]
    words = f"{data['rows']:,} rows of {cols:,} in {dtype}, blocks of {block:,}"
    picture = Drawing(720, 330, FIGURE.title, words)
    picture.text(24, 36, words, "f-ink strong")
    whole = sum(case["variants"]["naive"]["totals"][one] for one in ("read", "written"))
    for row, variant in enumerate(data["variants"]):
        total, y = case["variants"][variant["name"]]["totals"], 64 + 76 * row
        read, written = (data["rows"] * item_bytes * total[one] for one in ("read", "written"))
        scale = 660 / (whole * data["rows"] * item_bytes)
        picture.text(24, y + 12, variant["title"], "f-ink")
        picture.rect(24, y + 22, read * scale, 22, "f-load", 3)
        picture.rect(24 + read * scale, y + 22, written * scale, 22, "f-store", 3)
        picture.text(24, y + 60, f"{read:,} bytes read", "f-load small")
        picture.text(230, y + 60, f"{written:,} bytes written", "f-store small")
        times = (read + written) / data["least"][f"{cols} {dtype}"]
        picture.text(684, y + 60, f"{times:.2f} times the least", "f-quiet small end")
    picture.text(24, 312, "Between HBM and the chip, counted element by element.", "f-quiet small")
    return picture.svg()


FIGURE = Figure(
    title="What softmax moves",
    lead="Three ways to compute the same rows, one row of each side by side; a step is one tile."
    " Watch how often a value crosses between memory (HBM) and chip (SRAM and registers).",
    reading=(
        "HBM bytes are counted access by access, and lanes that are masked off move nothing. A test runs the"
        " kernels in Triton's interpreter, counts their loads and stores, and compares.",
        "On chip every element that the arithmetic reads or writes is counted, in fp32; no GPU reports that."
        " One number of a row, its maximum or its sum, is counted where it moves through HBM.",
        "The least is what lab 2 counts for its bandwidth: every element read once and written once.",
        "Online softmax reads a row twice. On a GPU the second reading may come from L2, but counts here.",
    ),
    compute=compute,
    draw=draw,
    height_px=1120,
    screenshot_step=6,
)
