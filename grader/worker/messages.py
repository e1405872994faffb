"""What judge and worker say to each other, as data, and how a payload becomes that.

What the judge sends, a worker decodes as it is. What a worker sends is a claim of whatever types: `claimed`
keeps numbers and lines of text of it, which are shown and earn nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from grader.course.signatures import Shape
from grader.sandbox.confine import Confinement
from grader.system.text import one_line
from grader.worker.protocol import Json, JsonObject, ProtocolError

MOST_US = 1e12  # of a time that a worker claims: more than a week

# A lent tensor: byte offset in the arena, shape, strides in elements, dtype.
Place: TypeAlias = tuple[int, Shape, tuple[int, ...], str]
Number: TypeAlias = bool | int | float | list[int]


@dataclass(frozen=True)
class Setup:
    """What a worker is for, and all that it may know of the run; before any of the student's code runs."""

    folder: str  # its own, where it works
    file: str
    given: tuple[str, ...]  # modules of the lab that the file may import
    environment: dict[str, str]
    device: str
    arena_bytes: int
    handle: str  # of the lent memory on a GPU, in hexadecimal; on a CPU it comes as a descriptor
    tuning: str  # of autotuned kernels: "full", "chance" or "offline"
    seed: int  # of the configs taken by chance
    arch: int  # to compile for, 90 for sm_90
    confinement: Confinement


@dataclass(frozen=True)
class Plan:
    """Calls of one function to make ready under a number: inputs in order, and outputs by name, of each."""

    plan: int
    function: str
    differentiable: bool
    named: dict[str, Number]  # what all calls get besides
    calls: tuple[tuple[tuple[Place, ...], dict[str, Place]], ...]


@dataclass(frozen=True)
class Go:
    """Run a plan."""

    plan: int


@dataclass(frozen=True)
class Audit:
    """Run a plan once more, with kernels that do nothing, or `kernels_counted` by CUPTI: but for those of the
    operators that it `may_call`.
    """

    plan: int
    kernels_counted: bool
    may_call: tuple[str, ...]


@dataclass(frozen=True)
class Ran:
    """How a plan ran: microseconds by the worker's own clock, and the torch operators that computed."""

    claimed_us: float = 0.0
    operators: tuple[str, ...] = ()

    def payload(self) -> JsonObject:
        """For a frame; as short as can be, since a timed one counts."""
        operators: JsonObject = {"operators": list(self.operators)} if self.operators else {}
        return {"claimed_us": self.claimed_us} | operators

    @classmethod
    def claimed(cls, reply: JsonObject) -> Ran:
        """What a reply says of it; ProtocolError for a time that is none."""
        claim = reply.get("claimed_us", 0.0)
        if not isinstance(claim, float) or not 0.0 <= claim < MOST_US:
            raise ProtocolError("it claimed a time that is none")
        return cls(claim, tuple(_lines(reply.get("operators"))))


@dataclass(frozen=True)
class Picked:
    """The config that each autotuned kernel of the file ran with last, by the kernel's name."""

    configs: Mapping[str, str]

    def payload(self) -> JsonObject:
        """For a frame."""
        return {"picked": dict(self.configs)}

    @classmethod
    def claimed(cls, reply: JsonObject) -> Picked:
        """What a reply says of it."""
        told = reply.get("picked")
        pairs = told.items() if isinstance(told, dict) else ()
        return cls({one_line(str(name)): one_line(str(config)) for name, config in pairs})


@dataclass
class AuditReport:
    """What a plan did besides the kernels of its own file, as names; filled while it runs.

    Torch `operators` that computed, and `foreign` functions that were launched; where kernels were counted,
    `strangers` that ran more often than the file launched them, and why they could not be: `uncounted`.
    """

    operators: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)
    strangers: list[str] = field(default_factory=list)
    uncounted: list[str] = field(default_factory=list)

    @classmethod
    def claimed(cls, reply: JsonObject) -> AuditReport:
        """What a reply says of it."""
        names = ("operators", "foreign", "strangers", "uncounted")
        return cls(*(_lines(reply.get(name)) for name in names))


def _lines(claim: Json) -> list[str]:
    """A line of text for each part of a list; none of anything else."""
    return [one_line(str(part)) for part in claim] if isinstance(claim, list) else []
