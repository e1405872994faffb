"""Round points for printing: at most two decimals, and every column adds up to its total."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from grader.results import scoring
from grader.results.base import DECIMALS
from grader.results.models import ItemResult

UNIT = 10**DECIMALS  # units in a point; sums of units are exact
PRINTED = UNIT // 100  # units in a hundredth of a point


class Shown(int):
    """Points in hundredths; as text, they have only the decimals needed: `43.75`, `43.8` or `100`."""

    def __str__(self) -> str:
        whole, rest = divmod(abs(self), 100)
        decimals = f".{rest:02}".rstrip("0") if rest else ""
        return f"{'-' if self < 0 else ''}{whole}{decimals}"

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)


def text(points: float) -> str:
    """Format points that are not part of a sum, to two decimals."""
    return str(_shown(_units(points)))


def rounded(points: float) -> float:
    """Return the number that `text` shows."""
    return _shown(_units(points)) / 100


def column(points: Sequence[float]) -> list[Shown]:
    """Round the points of a column so that the printed numbers add up to their rounded sum."""
    exact = [_units(one) for one in points]
    up = _rounded_up(exact, _shown(sum(exact)))
    return [Shown(value // PRINTED + (k in up)) for k, value in enumerate(exact)]


@dataclass(frozen=True)
class Score:
    """The points of several items, as they are printed."""

    earned: Shown
    lost: Shown
    not_graded: Shown

    @property
    def graded(self) -> Shown:
        """Earned and lost points together."""
        return Shown(self.earned + self.lost)

    @property
    def most(self) -> Shown:
        """All points: graded and not graded."""
        return Shown(self.graded + self.not_graded)


def score_of(items: Sequence[ItemResult]) -> Score:
    """Return the printed total of several items."""
    earned, lost, still_open = _parts(items)
    graded = _shown(earned + lost)
    return Score(
        _shown(earned),
        Shown(graded - _shown(earned)),
        Shown(_shown(earned + lost + still_open) - graded),
    )


def split(score: Score, groups: Sequence[Sequence[ItemResult]]) -> list[Score]:
    """Split a score among groups of its items; earned, lost and not graded points add up to it.

    Each number, and each group's sum, is rounded up or down to a hundredth by the largest-remainder method: a
    group that is worth 20 points is printed with 20, whatever was earned.
    """
    parts = [_parts(items) for items in groups]
    totals = (score.earned, score.lost, score.not_graded)
    up = [_rounded_up([part[which] for part in parts], total) for which, total in enumerate(totals)]
    _even_out(up, [[value % PRINTED for value in part] for part in parts])
    return [
        Score(*(Shown(value // PRINTED + (row in up[which])) for which, value in enumerate(part)))
        for row, part in enumerate(parts)
    ]


def _parts(items: Sequence[ItemResult]) -> tuple[int, int, int]:
    """Return the earned, lost and not graded points of items, in units."""
    found = scoring.total(items)
    earned, graded = _units(found.earned), _units(found.graded)
    return earned, graded - earned, _units(found.not_graded)


def _rounded_up(exact: Sequence[int], total: int) -> set[int]:
    """Return the positions of the values to round up to a hundredth, so that all add up to `total`."""
    left = {k: value % PRINTED for k, value in enumerate(exact) if value % PRINTED}
    missing = total - sum(value // PRINTED for value in exact)
    return set(sorted(left, key=lambda k: (-left[k], k))[: max(0, missing)])


def _even_out(up: list[set[int]], left: Sequence[Sequence[int]]) -> None:
    """Change in place which rows are rounded up, until each row's sum is also right to a hundredth.

    `up` has, by column, the rows that are rounded up; `left` has, by row, the remainder in each column.
    """
    rows = range(len(left))
    fewest = [sum(row) // PRINTED for row in left]
    most = [-(-sum(row) // PRINTED) for row in left]
    while True:
        ups = [sum(row in column for column in up) for row in rows]
        over = [row for row in rows if ups[row] > most[row]]
        under = [row for row in rows if ups[row] < fewest[row]]
        givers = over or [row for row in rows if ups[row] > fewest[row]]
        takers = under or [row for row in rows if ups[row] < most[row]]
        path = _path(givers, takers, up, left) if over or under else []
        if not path:
            return
        for giver, taker, which in path:
            up[which].remove(giver)
            up[which].add(taker)


def _path(
    givers: Sequence[int], takers: Sequence[int], up: Sequence[set[int]], left: Sequence[Sequence[int]]
) -> list[tuple[int, int, int]]:
    """Find, by breadth-first search, the fewest exchanges in columns that lead from a giver to a taker."""
    reached: dict[int, list[tuple[int, int, int]]] = {row: [] for row in givers}
    waiting = deque(givers)
    while waiting:
        giver = waiting.popleft()
        for which, column in enumerate(up):
            for taker in range(len(left)) if giver in column else ():
                if taker not in column and taker not in reached and left[taker][which]:
                    reached[taker] = [*reached[giver], (giver, taker, which)]
                    if taker in takers:
                        return reached[taker]
                    waiting.append(taker)
    return []


def _units(points: float) -> int:
    return round(points * UNIT)


def _shown(units: int) -> Shown:
    return Shown((units + PRINTED // 2) // PRINTED)
