"""Run launches of the course's kernels in Triton's interpreter, and record the steps of each program."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from dataclasses import dataclass, field

from grader.course import catalog
from grader.system.processes import run_tool

LIMIT_S = 240.0
ITEM_BYTES = {"float32": 4, "float16": 2}  # the dtypes that the interpreter computes correctly


@dataclass(frozen=True)
class Buffer:
    """Memory that a kernel gets a pointer to: its values in order; None is memory that was never written."""

    values: tuple[float | None, ...]
    dtype: str = "float32"

    def __post_init__(self):
        if self.dtype not in ITEM_BYTES:
            raise ValueError(f"{self.dtype}: a trace supports only {' and '.join(ITEM_BYTES)}")


@dataclass(frozen=True)
class Launch:
    """One launch: a kernel of a file below solutions/, programs along the first axis, arguments by name."""

    file: str
    kernel: str
    programs: int
    arguments: dict[str, Buffer | int | float]
    constants: dict[str, int | bool] = field(default_factory=dict)


@dataclass(frozen=True)
class Access:
    """One load or store: for each lane its offset (elements from the start of `buffer`), mask and value.

    `other` says whether masked-off lanes have a value that the kernel chose. Lanes that are `outside` of the
    buffer are active, and neither read nor write anything here.
    """

    kind: str  # "load" or "store"
    buffer: str
    offsets: tuple[int, ...]
    mask: tuple[bool, ...]
    values: tuple[float, ...]
    other: bool
    outside: tuple[bool, ...] = ()


@dataclass(frozen=True)
class Step:
    """One line that a program ran: its accesses, and the names whose value it changed.

    A block's value is a list, in the order of its elements; a pointer is {"buffer", "offset"}, in elements.
    """

    line: int
    accesses: tuple[Access, ...]
    changed: dict


def trace(launches: list[Launch]) -> list[list[list[Step]]]:
    """Return the steps of each program of each launch; RuntimeError if the interpreter fails."""
    child = run_tool(
        [sys.executable, "-B", "-m", "grader.site.figures.interpret"],
        LIMIT_S,
        given=json.dumps([dataclasses.asdict(launch) for launch in launches]).encode(),
        env={**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(catalog.ROOT)},
        cwd=catalog.ROOT,
    )
    if child.code:
        raise RuntimeError(
            f"Triton's interpreter ended with {child.code}; `make doctor` checks this machine for the"
            f" cause:\n{child.complaint[-2000:]}"
        )
    return [
        [[step_of(step) for step in program] for program in launch] for launch in json.loads(child.output)
    ]


def step_of(step: dict) -> Step:
    """Return a step as the interpreting process tells it."""
    accesses = tuple(
        Access(**{name: tuple(one) if isinstance(one, list) else one for name, one in access.items()})
        for access in step["accesses"]
    )
    return Step(step["line"], accesses, step["changed"])
