"""The messages between judge and worker as dataclasses, and their conversion from payloads.

A worker decodes the judge's messages strictly. A worker's message is a claim whose fields may have any type:
`claimed` takes numbers and lines of text from it, which are shown and earn no points.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from grader.course.signatures import Shape
from grader.sandbox.confine import Confinement
from grader.system.text import one_line
from grader.worker.protocol import Json, JsonObject, ProtocolError

MOST_US = 1e12  # longest time that a worker may report: more than a week

# A lent tensor: byte offset in the arena, shape, strides in elements, dtype.
Place: TypeAlias = tuple[int, Shape, tuple[int, ...], str]
Number: TypeAlias = bool | int | float | list[int]


@dataclass(frozen=True)
class Setup:
    """A worker's task, and all that it may know of the run; sent before any of the student's code runs."""

    folder: str  # its working folder
    file: str
    given: tuple[str, ...]  # modules of the lab that the file may import
    parts: tuple[str, ...]  # other files of the student that it imports
    environment: dict[str, str]
    device: str
    arena_bytes: int
    handle: str  # of the lent memory on a GPU, in hexadecimal; on a CPU a file descriptor is passed
    tuning: str  # of autotuned kernels: "full", "chance" or "offline"
    tuning_seed: int  # for the random choice of configs
    arch: int  # to compile for, 90 for sm_90
    confinement: Confinement


@dataclass(frozen=True)
class Plan:
    """Calls of one function to prepare under a number; each has inputs in order and outputs by name."""

    plan: int
    function: str
    differentiable: bool
    named: dict[str, Number]  # keyword arguments of all calls
    calls: tuple[tuple[tuple[Place, ...], dict[str, Place]], ...]


@dataclass(frozen=True)
class Go:
    """Run a plan."""

    plan: int


@dataclass(frozen=True)
class Audit:
    """Run a plan once more to audit it: with kernels that do nothing, or with `kernels_counted` by CUPTI.

    Kernels of the operators in `may_call` do not count.
    """

    plan: int
    kernels_counted: bool
    may_call: tuple[str, ...]


@dataclass(frozen=True)
class Ran:
    """The result of a run: microseconds by the worker's own clock, and the torch operators that computed."""

    claimed_us: float = 0.0
    operators: tuple[str, ...] = ()

    def payload(self) -> JsonObject:
        """Return the payload of a frame; short, because sending it is timed."""
        operators: JsonObject = {"operators": list(self.operators)} if self.operators else {}
        return {"claimed_us": self.claimed_us} | operators

    @classmethod
    def claimed(cls, reply: JsonObject) -> Ran:
        """Read the result from a reply; ProtocolError if the time is invalid."""
        claim = reply.get("claimed_us", 0.0)
        if not isinstance(claim, float) or not 0.0 <= claim < MOST_US:
            raise ProtocolError("the file's process reported an invalid time")
        return cls(claim, tuple(_lines(reply.get("operators"))))


@dataclass(frozen=True)
class Picked:
    """The config with which each autotuned kernel of the file ran last, by the kernel's name."""

    configs: Mapping[str, str]

    def payload(self) -> JsonObject:
        """Return the payload of a frame."""
        return {"picked": dict(self.configs)}

    @classmethod
    def claimed(cls, reply: JsonObject) -> Picked:
        """Read the configs from a reply."""
        picked = reply.get("picked")
        pairs = picked.items() if isinstance(picked, dict) else ()
        return cls({one_line(str(name)): one_line(str(config)) for name, config in pairs})


@dataclass
class AuditReport:
    """What a plan did besides running the kernels of its own file, as names; filled while it runs.

    `operators` are torch operators that computed, `foreign` are launched functions from other files. If
    kernels were counted, `strangers` ran more often than the file launched them; `uncounted` says why the
    count failed.
    """

    operators: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)
    strangers: list[str] = field(default_factory=list)
    uncounted: list[str] = field(default_factory=list)

    @classmethod
    def claimed(cls, reply: JsonObject) -> AuditReport:
        """Read the report from a reply."""
        names = ("operators", "foreign", "strangers", "uncounted")
        return cls(*(_lines(reply.get(name)) for name in names))


def _lines(claim: Json) -> list[str]:
    """Return a line of text for each item of a list; nothing for any other value."""
    return [one_line(str(part)) for part in claim] if isinstance(claim, list) else []
