"""Elements that softmax moves for each tile of one row: operation by operation, fused, and online."""

from __future__ import annotations

from dataclasses import dataclass, field

ON_CHIP_BYTES = 4  # the kernels compute in fp32 for every input dtype


@dataclass(frozen=True)
class Move:
    """One step on one tile, counted in elements.

    `read` and `write` are HBM accesses by array, `on_chip` are reads and writes of the arithmetic, and `held`
    is the number of block elements on chip.
    """

    does: str
    tile: int
    read: dict[str, int] = field(default_factory=dict)
    write: dict[str, int] = field(default_factory=dict)
    on_chip: int = 0
    held: int = 0


@dataclass(frozen=True)
class Operation:
    """One of the five operations of softmax, run as a separate kernel; arrays are those of one row."""

    does: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]


ONE_NUMBER = ("m", "d")  # one value for each row: its maximum and its sum
OPERATIONS = (
    Operation("m = max(x)", ("x",), ("m",)),
    Operation("z = x - m", ("x", "m"), ("z",)),
    Operation("e = exp(z)", ("z",), ("e",)),
    Operation("d = sum(e)", ("e",), ("d",)),
    Operation("y = e / d", ("e", "d"), ("y",)),
)
ARITHMETIC = sum(1 + (one.writes[0] not in ONE_NUMBER) for one in OPERATIONS)  # on-chip accesses per element


def tiles(cols: int, block: int) -> list[int]:
    """Return the number of elements of each tile of a row; the last tile may be shorter."""
    return [min(block, cols - start) for start in range(0, cols, block)]


def naive(cols: int, block: int) -> list[Move]:
    """Return the moves of five kernels, each of which reads what the previous one wrote."""
    sizes, moves = tiles(cols, block), []
    for one in OPERATIONS:
        for tile, n in enumerate(sizes):
            # The value of a row is read with the first tile, and written after the last tile.
            read = {name: n if name not in ONE_NUMBER else 1 for name in one.reads
                    if name not in ONE_NUMBER or tile == 0}  # fmt: skip
            last = tile == len(sizes) - 1
            write = {name: n if name not in ONE_NUMBER else 1 for name in one.writes
                     if name not in ONE_NUMBER or last}  # fmt: skip
            on_chip = n * (1 + (one.writes[0] not in ONE_NUMBER))
            moves.append(Move(one.does, tile, read, write, on_chip, n))
    return moves


def fused(cols: int, block: int) -> list[Move]:
    """Return the moves of one kernel that keeps the row on chip: load all tiles, normalise, store them."""
    sizes, moves, held = tiles(cols, block), [], 0
    divide = 2  # reads and writes of the last operation, done when a tile is stored
    for tile, n in enumerate(sizes):
        held += n
        whole = tile == len(sizes) - 1
        work = n + (
            cols * (ARITHMETIC - 1 - divide) if whole else 0
        )  # the maximum at each tile, the rest after the last one
        moves.append(Move("the row arrives", tile, {"x": n}, {}, work, held))
    for tile, n in enumerate(sizes):
        moves.append(Move("y = e / d", tile, {}, {"y": n}, divide * n, held))
        held -= n
    return moves


def online(cols: int, block: int) -> list[Move]:
    """Return the moves of one kernel that keeps a block, a maximum and a sum, and reads the row twice."""
    sizes = tiles(cols, block)
    # Maximum, shift, exponential and sum in the first pass; shift, exponential and division in the second.
    first = [Move("fold a block into m and d", t, {"x": n}, {}, 6 * n, n) for t, n in enumerate(sizes)]
    again = [Move("normalise with m and d", t, {"x": n}, {"y": n}, 6 * n, n) for t, n in enumerate(sizes)]
    return first + again


def totals(moves: list[Move]) -> dict[str, int]:
    """Return element counts of one row: read from HBM, written to it, accessed and held on chip."""
    return {
        "read": sum(sum(move.read.values()) for move in moves),
        "written": sum(sum(move.write.values()) for move in moves),
        "on_chip": sum(move.on_chip for move in moves),
        "held": max(move.held for move in moves),
    }
