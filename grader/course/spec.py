"""The definition of a lab as frozen data classes, which reject bad values; imports no torch."""

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
    """How one case ended, in the words that a student reads."""

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


WRONG_RESULTS = (
    Verdict.WRONG,
    Verdict.OUT_OF_BOUNDS,
    Verdict.MUTATED_INPUT,
)  # of a call that came to its end


class Reason(str, enum.Enum):
    """The part after a verdict's slash, as in `WRONG/UNWRITTEN`."""

    __str__ = str.__str__  # the value, on every version of Python

    NONE = ""  # the verdict needs no reason
    # WRONG
    UNWRITTEN = "UNWRITTEN"
    NONFINITE = "NONFINITE"
    PRECISION = "PRECISION"
    MISMATCH = "MISMATCH"
    STALE = "STALE"
    NONDETERMINISTIC = "NONDETERMINISTIC"
    RETURNED = "RETURNED"
    RACE = "RACE"
    # OUT_OF_BOUNDS
    READ = "READ"
    WRITE = "WRITE"
    # POLICY
    FOREIGN_KERNEL = "FOREIGN_KERNEL"
    HOST_READ = "HOST_READ"
    HOST_WAIT = "HOST_WAIT"
    INTAKE = "INTAKE"
    # CRASHED
    PROTOCOL = "PROTOCOL"
    # OUT_OF_MEMORY
    HOST = "HOST"
    GPU = "GPU"
    # GRADER_FAULT
    INVALID_CASE = "INVALID_CASE"
    INVALID_REFERENCE = "INVALID_REFERENCE"


# Elements from one row to the next of a tensor whose rows lie far apart: row 2 is beyond 2^31 elements, and
# the stride itself is still a number of 32 bits, as it is for a kernel of which it is an argument. In 16 bits
# it is no multiple of 16 bytes, which a tensor descriptor would want: a kernel computes the offsets itself.
FAR_STRIDE = 2**30 + 68
WRAP = 2**32  # elements by which an offset is wrong that has wrapped around in 32 bits


@dataclass(frozen=True)
class Layout:
    """A tensor's layout in memory: `pad` unused elements after each row, or stored transposed, or both.

    Elements of a row are `step` apart: with 2 the tensor is every second column of a wider one. Of a tensor
    with four axes that is `swapped` the two in the middle are stored in the other order, as those of
    `x.view(batch, length, heads, dim).transpose(1, 2)` are.
    An `expanded` input is one number with strides of 0, as autograd hands it to the backward pass of a sum.
    The rows of a matrix that is `far` are FAR_STRIDE elements apart.
    """

    transposed: bool = False
    pad: int = 0
    expanded: bool = False
    far: bool = False
    step: int = 1
    swapped: bool = False

    def __post_init__(self) -> None:
        if self.pad < 0:
            raise ValueError(f"pad is {self.pad}; rows cannot overlap")
        if self.step < 1:
            raise ValueError(f"step is {self.step}; elements cannot overlap")
        if self.expanded and (self.transposed or self.has_gaps or self.far or self.swapped):
            raise ValueError("an expanded tensor has strides of 0, and no other layout")
        if self.far and (self.has_gaps or self.swapped):
            raise ValueError("rows that are far apart are not padded as well")
        if self.swapped and self.transposed:
            raise ValueError("a transposed tensor has the order of all its axes reversed")

    @property
    def has_gaps(self) -> bool:
        """Whether there is memory between the tensor's elements that is not its own."""
        return self.pad > 0 or self.step > 1

    def strides(self, shape: Shape) -> tuple[int, ...]:
        """Return the strides for `shape`, in elements."""
        if self.expanded:
            return (0,) * len(shape)
        if self.far:
            if len(shape) != 2:
                raise ValueError(f"only a matrix can have rows that lie far apart, not {shape}")
            return (1, FAR_STRIDE) if self.transposed else (FAR_STRIDE, 1)
        if self.swapped and len(shape) != 4:
            raise ValueError(f"only a tensor with four axes can have two of them swapped, not {shape}")
        axes = list(range(len(shape)))  # in the order in which they are stored
        if self.swapped:
            axes[1], axes[2] = 2, 1
        if self.transposed:
            axes.reverse()
        strides = [0] * len(shape)
        step = self.step
        for axis in reversed(axes):
            strides[axis] = step
            step *= shape[axis]
            if axis == axes[-1]:
                step += self.pad
        return tuple(strides)


PLAIN = Layout()


@dataclass(frozen=True, eq=False)
class Case:
    """One call to grade; `params` are for the exercise's `inputs`, the other fields for the judge.

    With `allocates` no output is passed: the function makes new tensors, and what it returns is graded. With
    `identity` a differentiable function returns its first input itself, and no copy of it. With `separate` it
    is called once for each gradient, and only the input of that gradient needs one. `configs` are
    texts of configs by the names of their kernels: edits are tried with those that alone make a case wrong.
    A random choice must be the same in the dtype `also_in`.
    """

    params: Params
    dtype: str = "fp32"
    layouts: Mapping[str, Layout] = field(default_factory=dict)  # by tensor name; contiguous if absent
    allocates: bool = False
    identity: bool = False
    separate: bool = False
    gpu_only: bool = False
    bitwise: bool = False  # every bit must equal PyTorch's result in this dtype
    also_right: tuple[
        str, ...
    ] = ()  # null solutions that happen to be right here, e.g. "uniform" for one column
    limit_s: float = 60.0
    configs: Mapping[str, str] = field(default_factory=dict)
    also_in: str = ""
    label: str = ""  # shown instead of the name of a hidden case

    def __post_init__(self) -> None:
        if self.also_in not in ("", *DTYPES):
            raise ValueError(f"also_in is {self.also_in!r}, not one of {', '.join(DTYPES)}")
        if self.dtype not in DTYPES:
            raise ValueError(f"dtype is {self.dtype!r}, not one of {', '.join(DTYPES)}")
        object.__setattr__(self, "params", MappingProxyType(dict(self.params)))
        object.__setattr__(self, "layouts", MappingProxyType(dict(self.layouts)))

    @property
    def name(self) -> str:
        """A readable id: `rows=29,cols=1001,x padded 7,fp16`."""
        if self.label:
            return self.label
        words = [f"{key}={value}" for key, value in self.params.items()]
        for tensor, layout in self.layouts.items():
            words += [f"{tensor} transposed"] if layout.transposed else []
            words += [f"{tensor} padded {layout.pad}"] if layout.pad else []
            words += [f"{tensor} step {layout.step}"] if layout.step > 1 else []
            words += [f"{tensor} swapped"] if layout.swapped else []
            words += [f"{tensor} expanded"] if layout.expanded else []
            words += [f"{tensor} rows far apart"] if layout.far else []
        words += ["no out"] if self.allocates else []
        words += ["one gradient at a time"] if self.separate else []
        return ",".join([*words, self.dtype])

    @property
    def is_far(self) -> bool:
        """Whether a tensor of the case reaches beyond 2^31 elements; few of these are there."""
        return any(layout.far for layout in self.layouts.values())

    @property
    def needs_gpu(self) -> bool:
        """Whether the case needs a GPU; bf16 does, as its arithmetic is wrong in Triton's interpreter."""
        return self.gpu_only or self.dtype == "bf16"


@dataclass(frozen=True, eq=False)
class Tolerance:
    """Error allowed against the fp64 reference: twice PyTorch's own, plus `floor` units per element.

    `unit(case, inputs, reference)` gives the size of one acceptable error for each element of each output: a
    tuple of fp64 tensors that broadcast against the reference. `floor_norm` is the same for the relative
    Frobenius norm, in units of the dtype's epsilon. `shared(case, inputs, reference)` gives what many
    elements may be off together, as all of a row with its mean: in a norm such errors do not average out.
    """

    unit: Callable[[Case, Inputs, Tensors], Tensors]
    floor: float = 2.0
    floor_norm: float = 0.25
    shared: Callable[[Case, Inputs, Tensors], Tensors] | None = None


@dataclass(frozen=True, eq=False)
class Arm:
    """A trusted function to time: its name in reports, the function of lab.py, and the layouts it needs."""

    name: str
    function: Callable[..., object]
    layouts: Mapping[str, Layout] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Speed:
    """Timed shapes, and the percentages of the fastest baseline at which points begin, pass and are full."""

    points: float
    shapes: tuple[Case, ...]
    baselines: tuple[Arm, ...]
    zero_at: float
    passing_at: float
    full_at: float
    bytes_moved: Callable[[Case], int]  # each input once, each output once
    flops: Callable[[Case], int] | None = None  # None: limited by bandwidth
    peers: tuple[Arm, ...] = ()  # timed and shown beside the result, without an effect on points
    smaller: Callable[[Params], Params] | None = None  # params of a smaller problem, if memory is short

    def __post_init__(self) -> None:
        if not self.shapes or not self.baselines:
            raise ValueError("speed needs at least one shape and one baseline")
        if not 0 <= self.zero_at < self.passing_at <= self.full_at <= 100:
            raise ValueError(
                f"zero_at {self.zero_at}, passing_at {self.passing_at}, full_at {self.full_at}: not in order"
            )


@dataclass(frozen=True, eq=False)
class Codegen:
    """Checks of the code generated for the student's launches; `checks` maps a check's name to its points."""

    case: Case
    checks: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "checks", MappingProxyType(dict(self.checks)))


@dataclass(frozen=True, eq=False)
class Native:
    """A function of a CUDA C++ file with the C interface `int symbol(inputs, outputs, sizes, cudaStream_t)`.

    Inputs and outputs are pointers, in the order of the call; `sizes(shapes)` returns the sizes, as integers,
    from the shapes of both by name. The C function returns a cudaError_t.
    """

    symbol: str
    sizes: Callable[[Mapping[str, Shape]], Iterable[int]]


@dataclass(frozen=True, eq=False)
class Exercise:
    """One graded function of one student file.

    * `inputs(rng, case)` returns the tensors by parameter name, in the order of the call. A value that is not
      a tensor is a number that is passed by name; `numbers` names these.
    * `reference(**inputs)` takes them in fp64 and returns a tuple, one tensor for each name in `outputs`.
    * `torch_op(**inputs)` is the same by PyTorch in the case's dtype; its error calibrates the tolerance.
    * `differentiable` exercises are called as y = f(x), then y.backward(dy). Their inputs are x, perhaps
      other tensors, and dy; their outputs are y and the gradients of the first of these tensors, in order.
    * `symptom_of(case, inputs, expected, got)` may name, from the first wrong output, the symptom of a
      mistake that only this exercise can make; None if it finds none.
    * `follow(case, inputs, outputs)` is for exercises that make a random choice. From the outputs it returns
      the results expected for this choice, which replace the reference. `bad_choice(case, outputs, earlier)`
      returns the symptom of a choice that lacks a property, or None; `earlier` are the outputs of a call with
      other inputs. `of_random_numbers` are those symptoms that any other random numbers would not have: an
      edit with which they are gone says nothing about the mistake.
    * `splits_sums`: several programs may add to one element by atomic additions, so that another run may give
      other digits. Without it two runs must give the same bits.
    * `may_call` names torch operators, such as "mm", that may do a part of the work in a backward pass.
    * `native` says how to call an exercise whose file is CUDA C++.
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
    follow: Callable[[Case, Inputs, Tensors], Tensors] | None = None
    bad_choice: Callable[[Case, Tensors, Tensors | None], AnySymptom | None] | None = None
    of_random_numbers: tuple[AnySymptom, ...] = ()
    splits_sums: bool = False
    may_call: tuple[str, ...] = ()
    native: Native | None = None

    def __post_init__(self) -> None:
        if not self.name.isidentifier():
            raise ValueError(f"{self.name!r} is not a function name")
        if self.file.endswith(".cu") != (self.native is not None):
            raise ValueError(
                f"{self.name}: {self.file} and native do not match: .cu files need it, others not"
            )
        if not self.cases:
            raise ValueError(f"{self.name}: no cases; an exercise needs at least one")
        names = [case.name for case in self.cases]
        twice = {name for name in names if names.count(name) > 1}
        if twice:
            raise ValueError(f"{self.name}: case {sorted(twice)[0]!r} is listed twice")


@dataclass(frozen=True, eq=False)
class Document:
    """A document that is handed in with the kernels; no code of it is run.

    `checks` maps the name of a check to its points and a function. The function takes the capstone's folder
    and returns the problems, one line each. It raises FileNotFoundError if there is nothing to check yet, and
    ValueError if the document cannot be read, each with a message.
    """

    name: str
    file: str
    checks: Mapping[str, tuple[float, Callable[[Path], Iterable[str]]]]
    native: ClassVar[None] = None
    speed: ClassVar[None] = None
    codegen: ClassVar[None] = None

    def __post_init__(self) -> None:
        if not self.checks:
            raise ValueError(f"{self.name}: no checks; a document needs at least one")
        object.__setattr__(self, "checks", MappingProxyType(dict(self.checks)))

    @property
    def points(self) -> float:
        """The points of all checks together."""
        return sum(points for points, _ in self.checks.values())


@dataclass(frozen=True, eq=False)
class Lab:
    """The definition of a lab.

    * `causes` maps a symptom to a README hint and the likely cause. A symptom is a Symptom, or a member of an
      enumeration that lab.py derives from LabSymptom; each member of that needs a cause.
    * `signs` are symptoms that many mistakes have: their cause is named only while no case could be looked at
      more closely.
    * `also_allowed` names modules that the lab's files may import beyond the common ones, and single names
      such as `torch.library.triton_op` (see policy_names).
    * `given` names modules of the lab's folder that its files may import, with the names they may use; they
      are part of the course, not a student's work. `headers` are the same for CUDA C++ files.
    * `imports` maps a student's file to the other files of the same student that it may import, each before
      those that import it.
    * `search_s` is how many seconds a run's start, its cases and the search for the cause of wrong ones may
      take together.
    * `teaches` says in a few words what the lab teaches, for lists of labs.
    """

    title: str
    exercises: tuple[Exercise | Document, ...]
    causes: Mapping[AnySymptom, tuple[int, str]] = field(default_factory=dict)
    signs: tuple[AnySymptom, ...] = ()
    also_allowed: tuple[str, ...] = ()
    given: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    headers: tuple[str, ...] = ()
    imports: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    search_s: float = 12.0
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
                f"{self.title}: given must have names of modules as they are imported, without .py"
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
        """Points of all exercises, for all tiers together."""
        total = 0.0
        for exercise in self.exercises:
            total += exercise.points
            total += exercise.speed.points if exercise.speed else 0.0
            total += sum(exercise.codegen.checks.values()) if exercise.codegen else 0.0
        return total


# Names of lab folders; those of the capstone have no number.
FOLDER = re.compile(r"lab(\d+)_[a-z0-9_]+|gpu-programming|cuda-kernels|triton-kernels")


def lab_word(folder: str, number: int) -> str:
    """Return a lab's name in reports, such as `lab 2`; everything in gpu-programming/ is the capstone."""
    return f"lab {number}" if folder.startswith("lab") else "capstone"
