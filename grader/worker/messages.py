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
from grader.worker.protocol import Json, JsonObject
from grader.worker.witness.record import Followed, Witnessed

IN_BACKWARD = " in backward"  # behind the name of an operator that ran in a backward pass
MOST_LINES, MOST_PLACES = 10**7, 8  # of a file; lines that a worker reports of one run

# What an edited kernel calls to compare expressions, and what it says of each: see alternatives.py.
# Within a class Python changes names that begin with two underscores, and do not end with two.
EITHER, CHOSEN, RAISES, SAME = "__kernel_either__", "__kernel_chosen__", -1, 0

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
    driver_cache: str  # of Triton's library for the CUDA driver; no student's code can write to it
    device: str
    arena_bytes: int
    handle: str  # of the lent memory on a GPU, in hexadecimal; on a CPU a file descriptor is passed
    tuning: str  # of autotuned kernels: "full", "chance" or "offline"
    tuning_seed: int  # for the random choice of configs
    arch: int  # to compile for, 90 for sm_90
    gated: bool  # whether the pages of a gate were passed
    ahead: bool  # only compile what is launched, into the cache of the workers on the GPU
    confinement: Confinement


@dataclass(frozen=True)
class Programs:
    """Another size of a grid: that of launch number `launch` of a call, from 0 on, along one axis."""

    launch: int
    axis: int
    size: int


@dataclass(frozen=True)
class OneProgram:
    """The only program that runs of launch number `launch` of a call, which is the last one that runs.

    `number` counts programs in the order in which the interpreter runs them, the last axis first.
    """

    launch: int
    number: int


@dataclass(frozen=True)
class Kept:
    """Launches whose effects are kept from a call that was recorded under `key`, and repeated without a run.

    Those are at most so many of the first ones, up to the first of a kernel that has `changed`. With `most`
    0 the call is recorded.
    """

    key: str
    most: int = 0
    changed: tuple[str, ...] = ()


@dataclass(frozen=True)
class Plan:
    """Calls of one function to prepare under a number; each has inputs in order and outputs by name."""

    plan: int
    function: str
    differentiable: bool
    allocates: bool  # outputs are not passed: what the function returns is copied to their places
    named: dict[str, Number]  # keyword arguments of all calls
    calls: tuple[tuple[tuple[Place, ...], dict[str, Place]], ...]
    separate: bool = False  # each gradient is asked for by itself
    other_configs: bool = False  # autotuned kernels take another config than in earlier calls
    tunes: bool = False  # and run once before, as where they are tuned
    configs: dict[str, str] = field(default_factory=dict)  # the text of one, by the kernel's name
    programs: Programs | None = None  # in place of those that host code launches; in the interpreter alone
    only: OneProgram | None = None  # in the interpreter alone
    kept: Kept | None = None  # in the interpreter alone
    filled: bool = False  # tensors that host code makes hold NaN at first


@dataclass(frozen=True)
class Go:
    """Run a plan to its end.

    If `exchanged`, kernels and the operators in `may_call` get other inputs than host code. If `witnessed`,
    the interpreter watches every load and store, with `bounds` alone only whether they stay in bounds, which
    is faster; if `traced`, every operation on floats in place of them. With a `most`, a call that is watched
    fails after so many loads and stores. If `products_idle`, tl.dot adds nothing to its accumulator there.
    Of a file that has other expressions beside its own, those that are `selected` run, by the number of the
    place; if none is, those are compared whose number leaves the rest `compared[0]` by `compared[1]`. Of a
    part that is `followed`, the interpreter finds the way into an element of an output. If `parsed`, a worker
    that compiles makes no machine code: Triton reads each kernel once, and finds errors as a compiler does.
    """

    plan: int
    exchanged: bool = False
    may_call: tuple[str, ...] = ()
    witnessed: bool = False
    traced: bool = False
    bounds: bool = False
    most: int | None = None
    products_idle: bool = False
    selected: dict[str, int] = field(default_factory=dict)
    compared: tuple[int, int] = (0, 1)
    followed: Followed | None = None
    parsed: bool = False


@dataclass(frozen=True)
class Queued:
    """Queue a plan on the GPU behind the gate, which lets `ticket` pass later; do not wait for it.

    If `watched`, report which torch operators compute and which kernels are launched.
    """

    plan: int
    ticket: int
    watched: bool


@dataclass(frozen=True)
class Edited:
    """Use another file in place of the submitted one: a changed line may make it right.

    If `is_base`, files that follow differ little from it. If `is_near`, this one does: it need not be
    imported as a whole. It may be overwritten when it is imported. What was imported as `kept` is kept, and
    used again when it is asked for again; the file is not read then.
    """

    file: str
    is_base: bool
    is_near: bool
    kept: int = 0


@dataclass(frozen=True)
class Audit:
    """Run a plan once more to audit it: with kernels that do nothing, or with `kernels_counted` by CUPTI.

    Kernels of the operators in `may_call` do not count.
    """

    plan: int
    kernels_counted: bool
    may_call: tuple[str, ...]


@dataclass(frozen=True)
class Read:
    """A place where host code did what is left to kernels: what, and the line of the student's file, or 0."""

    what: str
    line: int
    function: str
    code: str

    @classmethod
    def claimed(cls, claim: Json) -> Read:
        """Read a place from a reply."""
        fields = claim if isinstance(claim, dict) else {}
        what, line = one_line(str(fields.get("what", ""))), fields.get("line")
        valid = isinstance(line, int) and 0 < line < MOST_LINES
        code = (one_line(str(fields.get(name, ""))) for name in ("function", "code"))
        return cls(what, line if isinstance(line, int) and valid else 0, *code)


FIRST_INPUT = "the first input"  # told of what a differentiable function returned


@dataclass(frozen=True)
class Returned:
    """One value that a function returned: the name of its type, and what a tensor looks like.

    `output` is the name of the output whose memory it is, in the same shape and strides, or FIRST_INPUT; ""
    for any other.
    """

    type: str
    shape: tuple[int, ...] = ()
    dtype: str = ""
    contiguous: bool = False
    output: str = ""
    strides: tuple[int, ...] = ()

    @classmethod
    def claimed(cls, claim: Json) -> Returned:
        """Read a value from a reply."""
        fields = claim if isinstance(claim, dict) else {}
        listed = {name: fields.get(name) for name in ("shape", "strides")}
        sizes = {
            name: tuple(size for size in value if type(size) is int) if isinstance(value, list) else ()
            for name, value in listed.items()
        }
        texts = {name: one_line(str(fields.get(name, ""))) for name in ("type", "dtype", "output")}
        is_contiguous = fields.get("contiguous") is True
        return cls(shape=sizes["shape"], strides=sizes["strides"], contiguous=is_contiguous, **texts)


@dataclass(frozen=True)
class Ran:
    """What host code did in a run, as the worker tells it.

    `operators` are the torch operators that computed, `computed` the lines where they did, `reads` the lines
    where data was read. `launched` are the kernels with their work of tl.dot, as `launches.recorded` counts
    it. `returned` is what the last call returned, one value or several; None if that was not looked at.
    `witnessed` is what the interpreter saw of loads and stores, empty if it was not asked to watch.
    `alternatives` are what `interpreted.alternatives` has found of the places of an edited file.
    """

    operators: tuple[str, ...] = ()
    computed: tuple[Read, ...] = ()
    reads: tuple[Read, ...] = ()
    launched: Mapping[str, int] = field(default_factory=dict)
    returned: tuple[Returned, ...] | None = None
    witnessed: Witnessed = field(default_factory=Witnessed)
    alternatives: Mapping[str, list[int]] = field(default_factory=dict)

    @classmethod
    def claimed(cls, reply: JsonObject) -> Ran:
        """Read the result from a reply."""
        return cls(
            tuple(_lines(reply.get("operators"))),
            _places(reply.get("computed")),
            _places(reply.get("reads")),
            _counts(reply.get("launched")),
            _values(reply.get("returned")),
            Witnessed.claimed(reply.get("witnessed")),
            _classes(reply.get("alternatives")),
        )


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
    count failed. `steps` are the bytecode instructions of the file that ran in a call.
    """

    operators: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)
    strangers: list[str] = field(default_factory=list)
    uncounted: list[str] = field(default_factory=list)
    steps: int = 0

    @classmethod
    def claimed(cls, reply: JsonObject) -> AuditReport:
        """Read the report from a reply."""
        names, steps = ("operators", "foreign", "strangers", "uncounted"), reply.get("steps")
        operators, foreign, strangers, uncounted = (_lines(reply.get(name)) for name in names)
        return cls(operators, foreign, strangers, uncounted, steps if isinstance(steps, int) else 0)


def _places(claim: Json) -> tuple[Read, ...]:
    return tuple(map(Read.claimed, claim[:MOST_PLACES])) if isinstance(claim, list) else ()


def _values(claim: Json) -> tuple[Returned, ...] | None:
    return tuple(map(Returned.claimed, claim[:MOST_PLACES])) if isinstance(claim, list) else None


def _counts(claim: Json) -> dict[str, int]:
    """Return the counts of a dictionary; nothing for any other value."""
    pairs = claim.items() if isinstance(claim, dict) else ()
    return {one_line(name): count for name, count in pairs if type(count) is int and count >= 0}


def _classes(claim: Json) -> dict[str, list[int]]:
    pairs = claim.items() if isinstance(claim, dict) else ()
    return {
        name: [one for one in found if type(one) is int] for name, found in pairs if isinstance(found, list)
    }


def _lines(claim: Json) -> list[str]:
    """Return a line of text for each item of a list; nothing for any other value."""
    return [one_line(str(part)) for part in claim] if isinstance(claim, list) else []
