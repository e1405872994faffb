"""Error maps: where in an output the wrong elements are, as a coarse grid of bounded size."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Protocol

from pydantic import BaseModel, ConfigDict, Field

if TYPE_CHECKING:
    import torch

MOST_ROWS = MOST_COLUMNS = 32
MOST_OF_A_VECTOR = 128  # cells of a vector, whose map has only one row
ALL = 9  # the level of a cell with only wrong elements; 0 is a cell without any

Index = Annotated[int, Field(ge=0)]
Cells = Annotated[str, Field(pattern=r"^[0-9]{1,128}$")]


class ErrorMap(BaseModel):
    """The positions of the wrong elements of one output, as a grid over rows of its last dimension.

    A vector is one row. The map has positions and counts only, no values. `cells` has a string for each row
    of the grid and a digit for each cell: 0 if no element is wrong, 1 to 8 for the wrong share in eighths,
    rounded up, 9 if all are wrong. `box` is exact: first and last wrong row, first and last wrong column.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    version: int = 1
    output: str
    shape: Annotated[list[Index], Field(max_length=8)]
    wrong: Index
    first: Annotated[list[Index], Field(max_length=8)]
    box: Annotated[list[Index], Field(min_length=4, max_length=4)]
    cells: Annotated[list[Cells], Field(min_length=1, max_length=MOST_ROWS)]

    @property
    def extent(self) -> tuple[int, int]:
        """Rows and columns that the grid covers."""
        columns = self.shape[-1] if self.shape else 1
        elements = 1
        for size in self.shape:
            elements *= size
        return elements // max(columns, 1), columns


class WrongOutput(Protocol):
    """The facts about a wrong output that a map needs."""

    @property
    def output(self) -> str:
        """The output's name."""

    @property
    def wrong(self) -> int:
        """How many elements are wrong."""

    @property
    def index(self) -> tuple[int, ...]:
        """The index of the first wrong element."""

    @property
    def bad(self) -> torch.Tensor:
        """True for each wrong element: bool, of the output's shape."""


def map_of(finding: WrongOutput) -> ErrorMap:
    """Return the map of an output with at least one wrong element."""
    flat = finding.bad.reshape(-1, finding.bad.shape[-1]) if finding.bad.dim() else finding.bad.reshape(1, 1)
    height, width = flat.shape
    most = MOST_OF_A_VECTOR if height == 1 else MOST_COLUMNS
    down, across = _edges(height, MOST_ROWS), _edges(width, most)
    rows, columns = flat.any(dim=1).nonzero(), flat.any(dim=0).nonzero()
    return ErrorMap(
        output=finding.output,
        shape=list(finding.bad.shape),
        wrong=finding.wrong,
        first=list(finding.index),
        box=[int(rows[0]), int(rows[-1]), int(columns[0]), int(columns[-1])],
        cells=[
            "".join(_level(flat[top:bottom, left:right]) for left, right in pairwise(across))
            for top, bottom in pairwise(down)
        ],
    )


def _edges(size: int, most: int) -> list[int]:
    """Return the starts of the cells along one axis, and the end of the last."""
    cells = min(size, most)
    return [size * k // cells for k in range(cells + 1)]


def _level(cell: torch.Tensor) -> str:
    wrong, of = int(cell.count_nonzero()), cell.numel()
    return str(ALL if wrong == of else -(-8 * wrong // of))
