"""What a lab asks, as frozen data that refuses bad values; imports no torch."""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar

from grader.course.signatures import Inputs, Params, Rng, Shape, Tensors
from grader.course.symptoms import AnySymptom, checked_symptom, without_cause

if TYPE_CHECKING:
    import torch

DTYPES = ("fp32", "fp16", "bf16")


class Verdict(str, enum.Enum):
    """How one case ended; the words a student reads."""

    PASS = "PASS"
    WRONG = "WRONG"
    SLOW = "SLOW"
    NOT_STARTED = "NOT_STARTED"
    NOT_GRADED = "NOT_GRADED"
    COMPILE_ERROR = "COMPILE_ERROR"
    CRASHED = "CRASHED"
    TIMEOUT = "TIMEOUT"
    OUT_OF_MEMORY = "OUT_OF_MEMORY"
    RESOURCE_LIMIT = "RESOURCE_LIMIT"
    POLICY = "POLICY"
    OUT_OF_BOUNDS = "OUT_OF_BOUNDS"
    MUTATED_INPUT = "MUTATED_INPUT"
    IMPOSSIBLE = "IMPOSSIBLE"
    INCONCLUSIVE = "INCONCLUSIVE"
    GRADER_FAULT = "GRADER_FAULT"


class Reason(str, enum.Enum):
    """Why, after the verdict's slash, as in `WRONG/UNWRITTEN`."""

    __str__ = str.__str__  # the value, on every version of Python

    NONE = ""  # the verdict says it all
    # WRONG
    UNWRITTEN = "UNWRITTEN"
    NONFINITE = "NONFINITE"
    PRECISION = "PRECISION"
    MISMATCH = "MISMATCH"
    STALE = "STALE"
    NONDETERMINISTIC = "NONDETERMINISTIC"
    # OUT_OF_BOUNDS
    READ = "READ"
    WRITE = "WRITE"
    # POLICY
    FOREIGN_KERNEL = "FOREIGN_KERNEL"
    INTAKE = "INTAKE"
    # CRASHED
    PROTOCOL = "PROTOCOL"
    # OUT_OF_MEMORY
    HOST = "HOST"
    GPU = "GPU"
    # GRADER_FAULT
    INVALID_CASE = "INVALID_CASE"
    INVALID_REFERENCE = "INVALID_REFERENCE"


@dataclass(frozen=True)
class Layout:
    """How a tensor lies in memory: rows `pad` elements apart beyond their length, or stored transposed."""

    transposed: bool = False
    pad: int = 0

    def __post_init__(self) -> None:
        if self.pad < 0:
            raise ValueError(f"pad is {self.pad}; rows cannot overlap")

    def strides(self, shape: Shape) -> tuple[int, ...]:
        """Strides in elements for `shape`."""
        stored = shape[::-1] if self.transposed else shape
        strides: list[int] = []
        step = 1
        for axis in range(len(stored) - 1, -1, -1):
            strides.insert(0, step)
            step *= stored[axis]
            if axis == len(stored) - 1:
                step += self.pad
        return tuple(strides[::-1] if self.transposed else strides)


PLAIN = Layout()


@dataclass(frozen=True, eq=False)
class Case:
    """One call to grade: `params` go to the exercise's `inputs`, everything else is handled by the judge."""

    params: Params
    dtype: str = "fp32"
    layouts: Mapping[str, Layout] = field(default_factory=dict)  # per tensor name; contiguous where absent
    gpu_only: bool = False
    bitwise: bool = False  # every bit must agree with PyTorch's result in this dtype
    also_right: tuple[
        str, ...
    ] = ()  # null solutions that happen to be right here, e.g. "uniform" for one column
    limit_s: float = 60.0
    label: str = ""  # of a hidden case: stands for its name

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise ValueError(f"dtype is {self.dtype!r}, not one of {', '.join(DTYPES)}")
        object.__setattr__(self, "params", MappingProxyType(dict(self.params)))
        object.__setattr__(self, "layouts", MappingProxyType(dict(self.layouts)))

    @property
    def name(self) -> str:
        """An id that reads as text: `rows=29,cols=1001,x padded 7,fp16`."""
        if self.label:
            return self.label
        words = [f"{key}={value}" for key, value in self.params.items()]
        for tensor, layout in self.layouts.items():
            words += [f"{tensor} transposed"] if layout.transposed else []
            words += [f"{tensor} padded {layout.pad}"] if layout.pad else []
        return ",".join([*words, self.dtype])

    @property
    def needs_gpu(self) -> bool:
        """bf16 arithmetic is wrong in Triton's interpreter, so bf16 cases need a GPU."""
        return self.gpu_only or self.dtype == "bf16"


@dataclass(frozen=True, eq=False)
class Tolerance:
    """Error allowed against the fp64 reference: twice PyTorch's own, plus `floor` units per element.

    `unit(case, inputs, reference)` gives the size of one acceptable error for each element of each output: a
    tuple of fp64 tensors that broadcast against the reference. `floor_norm` is the same for the relative
    Frobenius norm, in units of the dtype's epsilon.
    """

    unit: Callable[[Case, Inputs, Tensors], Tensors]
    floor: float = 2.0
    floor_norm: float = 0.25


@dataclass(frozen=True, eq=False)
class Arm:
    """A trusted function timed in the reference worker: name for the report, function of lab.py, layouts it
    wants.
    """

    name: str
    function: Callable[..., object]
    layouts: Mapping[str, Layout] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Speed:
    """Timed shapes and how percent becomes points; percent is of the fastest of `baselines`."""

    points: float
    shapes: tuple[Case, ...]
    baselines: tuple[Arm, ...]
    zero_at: float
    passing_at: float
    full_at: float
    bytes_moved: Callable[[Case], int]  # each input once, each output once
    flops: Callable[[Case], int] | None = None  # None: bandwidth decides
    peers: tuple[Arm, ...] = ()  # timed and shown beside the result, without points
    smaller: Callable[[Params], Params] | None = None  # params of a smaller problem, where memory is short

    def __post_init__(self) -> None:
        if not self.shapes or not self.baselines:
            raise ValueError("speed needs at least one shape and one baseline")
        if not 0 <= self.zero_at < self.passing_at <= self.full_at <= 100:
            raise ValueError(
                f"zero {self.zero_at}, passing {self.passing_at}, full {self.full_at}: not in order"
            )


@dataclass(frozen=True, eq=False)
class Codegen:
    """What the compiler should make of the student's own launches; `checks` maps a check's name to its
    points.
    """

    case: Case
    checks: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "checks", MappingProxyType(dict(self.checks)))


@dataclass(frozen=True, eq=False)
class Native:
    """A function of a CUDA C++ file with the C interface `int symbol(inputs, outputs, sizes, cudaStream_t)`.

    Inputs and outputs are pointers in the order of the call; `sizes(shapes)` gives the sizes, as integers,
    from the shapes of both by name. What it returns is a cudaError_t.
    """

    symbol: str
    sizes: Callable[[Mapping[str, Shape]], Iterable[int]]


@dataclass(frozen=True, eq=False)
class Exercise:
    """One graded function of one student file.

    `inputs(rng, case)` returns the tensors by parameter name, in the order of the call; `reference(**inputs)`
    takes them in fp64 and returns a tuple, one tensor for each name in `outputs`; `torch_op(**inputs)` is the
    same in the case's dtype by PyTorch itself, whose error calibrates the tolerance. What `inputs` gives that
    is no tensor is a number that the call gets by name; `numbers` names these. `differentiable` exercises are
    called as y = f(x), then y.backward(dy): their inputs are x, perhaps other tensors, and dy; their outputs
    y and the gradients of the first of these tensors, in order.
    `symptom_of(case, inputs, expected, got)` may name, from the first wrong output, the symptom of a mistake
    that only this exercise can make; None where it sees none. `follow(case, inputs, outputs, earlier)` is for
    exercises with a random choice of their own: from the outputs it gives the results that this choice asks
    for, in place of the reference, and the symptom of a choice that lacks a property, or None; `earlier` are
    the outputs of a call with other inputs. `may_call` names torch operators, such as "mm", that may do a
    part of the work. `native` says how to call an exercise whose file is CUDA C++.
    """

    name: str
    file: str
    points: float
    inputs: Callable[[Rng, Case], Inputs]
    reference: Callable[..., Tensors]
    torch_op: Callable[..., Tensors]
    tolerance: Tolerance
    cases: tuple[Case, ...]
    outputs: tuple[str, ...] = ("out",)
    differentiable: bool = False
    symptom_of: Callable[[Case, Inputs, torch.Tensor, torch.Tensor], AnySymptom | None] | None = None
    speed: Speed | None = None
    codegen: Codegen | None = None
    numbers: tuple[str, ...] = ()
    follow: Callable[[Case, Inputs, Tensors, Tensors | None], tuple[Tensors, AnySymptom | None]] | None = None
    may_call: tuple[str, ...] = ()
    native: Native | None = None

    def __post_init__(self) -> None:
        if not self.name.isidentifier():
            raise ValueError(f"{self.name!r} is not a function name")
        if self.file.endswith(".cu") != (self.native is not None):
            raise ValueError(f"{self.name}: a file {self.file} and how to call it do not belong together")
        if not self.cases:
            raise ValueError(f"{self.name}: no cases; a check that finds nothing to check must fail")
        names = [case.name for case in self.cases]
        twice = {name for name in names if names.count(name) > 1}
        if twice:
            raise ValueError(f"{self.name}: case {sorted(twice)[0]!r} stands there twice")


@dataclass(frozen=True, eq=False)
class Document:
    """A document that is handed in beside kernels; nothing of it is run.

    `checks` maps the name of a check to its points and to a function that takes the folder of the capstone
    and gives what is wrong, a line each. It raises, with words, FileNotFoundError where there is nothing to
    check yet and ValueError for a document that cannot be read.
    """

    name: str
    file: str
    checks: Mapping[str, tuple[float, Callable[[Path], Iterable[str]]]]
    native: ClassVar[None] = None
    speed: ClassVar[None] = None
    codegen: ClassVar[None] = None

    def __post_init__(self) -> None:
        if not self.checks:
            raise ValueError(f"{self.name}: no checks; a check that finds nothing to check must fail")
        object.__setattr__(self, "checks", MappingProxyType(dict(self.checks)))

    @property
    def points(self) -> float:
        """Of all checks together."""
        return sum(points for points, _ in self.checks.values())


@dataclass(frozen=True, eq=False)
class Lab:
    """Everything a lab folder asks for. `causes` maps a symptom to a README hint and the likely cause: a
    Symptom, or a member of an enumeration that lab.py derives from LabSymptom, of which each has a cause.
    `also_allowed` names modules that its files may import beyond the common ones, and single names
    such as `torch.library.triton_op` (see policy_names). `given` names modules of the lab's own folder that
    its files may import, with what they may take from each; they are no student's work. `headers` are given
    files that CUDA C++ files may include. `teaches` says in a few words what one learns, for lists of labs.
    """

    title: str
    exercises: tuple[Exercise | Document, ...]
    causes: Mapping[AnySymptom, tuple[int, str]] = field(default_factory=dict)
    also_allowed: tuple[str, ...] = ()
    given: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    headers: tuple[str, ...] = ()
    teaches: str = ""

    def __post_init__(self) -> None:
        if not self.exercises:
            raise ValueError(f"{self.title}: no exercises")
        for symptom in self.causes:
            checked_symptom(symptom, f"{self.title}, causes")
        if missing := without_cause(self.causes):
            raise ValueError(f"{self.title}: {type(missing[0]).__name__}.{missing[0].name} has no cause")
        if not all(name.isidentifier() for name in self.given):
            raise ValueError(
                f"{self.title}: given holds names of modules of its folder, as they are imported"
            )
        for name in self.also_allowed:
            if not all(part.isidentifier() for part in name.split(".")):
                raise ValueError(f"{self.title}: {name!r} in also_allowed is not the name of a module")

    @property
    def functions(self) -> tuple[Exercise, ...]:
        """The exercises that are functions: all but documents."""
        return tuple(one for one in self.exercises if isinstance(one, Exercise))

    @property
    def points(self) -> float:
        """Points of all exercises, tiers together."""
        total = 0.0
        for exercise in self.exercises:
            total += exercise.points
            total += exercise.speed.points if exercise.speed else 0.0
            total += sum(exercise.codegen.checks.values()) if exercise.codegen else 0.0
        return total


# A lab's folder; those of the capstone have no number in their names.
FOLDER = re.compile(r"lab(\d+)_[a-z0-9_]+|gpu-programming|cuda-kernels|triton-kernels")


def lab_word(folder: str, number: int) -> str:
    """How a lab is called, `lab 2`; all that lies in gpu-programming/ is the capstone."""
    return f"lab {number}" if folder.startswith("lab") else "capstone"
