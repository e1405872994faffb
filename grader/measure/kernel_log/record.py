"""The record of one step of the kernel log; it is invalid unless its figures follow from its rounds."""

from __future__ import annotations

import re
from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from grader.judge import statistics
from grader.results import records
from grader.results.machine import Machine
from grader.results.records import Words

MOST_STEPS, MOST_FILES = 500, 16
FILE_NAME = r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,99}"
KERNEL_FILE = rf"^(cuda-kernels/{FILE_NAME}/{FILE_NAME}\.cu|triton-kernels/{FILE_NAME}\.py)$"
OF_FOLDER = {"vector_add": "vector_add", "reduction": "reduce_sum", "matmul": "cuda_matmul"}
OF_MODULE = ("swiglu", "add_rms_norm", "attention")

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_:.$]{1,200}$")]
Count = Annotated[int, Field(ge=0, le=10**9)]
Positive = Annotated[float, Field(gt=0)]
Status = Literal["ok", "wrong", "failed", "impossible", "not installed"]


class Figure(records.Model, allow_inf_nan=False):
    """A value from a profiler, scaled to `unit`, and the profiler's name for the metric."""

    value: float
    unit: Annotated[str, Field(pattern=r"^[a-z/% ]{0,30}$")]
    metric: Name


class KernelCounters(records.Model, allow_inf_nan=False):
    """One kernel launched by the call; a missing figure was not reported."""

    name: Name
    grid: Annotated[str, Field(pattern=r"^[0-9 ,()]{0,60}$")]
    block: Annotated[str, Field(pattern=r"^[0-9 ,()]{0,60}$")]
    figures: Annotated[
        dict[Annotated[str, Field(pattern=r"^[A-Za-z0-9 ]{1,40}$")], Figure], Field(max_length=40)
    ]
    stalls: Annotated[dict[Name, Figure], Field(max_length=40)]  # most first


class Compiled(records.Model, allow_inf_nan=False):
    """One kernel as compiled: registers and spills of a thread, static shared memory of a block."""

    name: Name
    registers: Count
    spill_bytes: Count
    shared_bytes: Count


class Paired(records.Model, allow_inf_nan=False):
    """Median and confidence interval of a ratio of times, taken round by round; 2.0 is twice as fast."""

    ratio: Positive
    low: Positive
    high: Positive


class Measured(records.Model, allow_inf_nan=False):
    """One arm of the bench; it has figures only if its results are right."""

    name: Annotated[str, Field(min_length=1, max_length=100)]
    status: Status
    reason: Words = ""
    median_us: Positive | None = None
    rate: Positive | None = None  # in the unit of the operation
    of_baseline: Paired | None = None
    rounds_us: Annotated[list[Positive], Field(max_length=2000)] = []


class Timing(records.Model, allow_inf_nan=False):
    """The kernel, the step that it is compared with, and the fastest baseline, in the same rounds."""

    unit: Literal["TB/s", "TFLOP/s"]
    method: Words
    work: Annotated[int, Field(gt=0)]  # bytes or FLOPs of a call
    ours: Measured
    previous: Measured | None = None
    baseline: Measured | None = None
    against_previous: Paired | None = None

    @model_validator(mode="after")
    def _figures_follow_from_rounds(self):
        if self.ours.status == "ok" and not self.ours.rounds_us:
            raise ValueError("the status of the kernel is ok, but it has no rounds")
        again = timing_from(self.unit, self.method, self.work, self.ours, self.previous, self.baseline)
        if self.model_dump() != again:
            raise ValueError("the figures of the timing do not follow from its rounds")
        return self


class Record(records.Record, allow_inf_nan=False):
    """One step of the log."""

    made_by: ClassVar[str] = "make log"
    most_bytes: ClassVar[int] = 1 << 20

    number: Annotated[int, Field(ge=1, le=MOST_STEPS)]
    date: Annotated[str, Field(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00$")]
    op: Literal["vector_add", "reduce_sum", "cuda_matmul", "swiglu", "add_rms_norm", "attention"]
    file: Annotated[str, Field(pattern=KERNEL_FILE)]  # below gpu-programming/
    files: Annotated[dict[str, Sha256], Field(min_length=1, max_length=MOST_FILES)]  # of the snapshot
    prediction: Annotated[str, Field(max_length=2000)]
    machine: Machine
    cuda: Annotated[str, Field(max_length=40)] | None
    size: Annotated[
        dict[Annotated[str, Field(pattern=r"^[a-z]{1,20}$")], Annotated[int, Field(gt=0, le=2**40)]],
        Field(min_length=1, max_length=6),
    ]
    compared_with: Annotated[int, Field(ge=0, lt=MOST_STEPS)]  # number of a step, 0 for none
    lines_added: Count
    lines_removed: Count
    status: Status
    reason: Words = ""
    timing: Timing | None
    compiled: Annotated[list[Compiled], Field(max_length=64)] = []
    counters: Annotated[list[KernelCounters], Field(max_length=64)] | None
    counters_missing: Words = ""
    previous: Annotated[str, Field(pattern=r"^([0-9a-f]{64})?$")]  # sha256 of the preceding record.json

    @model_validator(mode="after")
    def _fits_together(self):
        if op_of(self.file) != self.op:
            raise ValueError(f"{self.file} is not a file of {self.op}")
        if self.name not in self.files or not all(re.fullmatch(FILE_NAME, name) for name in self.files):
            raise ValueError("the files of the snapshot have wrong names, or the kernel is not among them")
        if self.compared_with >= self.number:
            raise ValueError("compared_with is not the number of an earlier step")
        if self.status != (self.timing.ours.status if self.timing else "failed"):
            raise ValueError("the status is not that of the timing")
        return self

    @property
    def name(self) -> str:
        """Return the name of the kernel file without its folders."""
        return self.file.rsplit("/", 1)[-1]

    @property
    def title(self) -> str:
        """Return the title of the series of steps: the folder of a CUDA file, or the operation."""
        return self.file.split("/")[1] if self.file.endswith(".cu") else self.op


def op_of(file: str) -> str | None:
    """Return the bench operation of a kernel file, given relative to gpu-programming/; None without one."""
    if not re.fullmatch(KERNEL_FILE[1:-1], file):
        return None
    _, place, *rest = file.split("/")
    stem = place.removesuffix(".py")
    return OF_FOLDER.get(place) if rest else stem if stem in OF_MODULE else None


def paired(base: Measured | None, arm: Measured) -> Paired | None:
    """Return base over arm, round by round; None if one of them has no rounds."""
    if base is None or not base.rounds_us or len(base.rounds_us) != len(arm.rounds_us):
        return None
    ratios = [b / a for b, a in zip(base.rounds_us, arm.rounds_us, strict=True)]
    low, high = statistics.interval(ratios)
    return Paired(ratio=statistics.median(ratios), low=low, high=high)


def timing_from(
    unit: str, method: str, work: int, ours: Measured, previous: Measured | None, baseline: Measured | None
) -> dict:
    """Return a `Timing` as plain data, with all figures computed from the rounds of the three arms."""

    def filled(arm: Measured | None) -> Measured | None:
        if arm is None or not arm.rounds_us or arm.status != "ok":
            return arm and Measured(name=arm.name, status=arm.status, reason=arm.reason)
        median = statistics.median(arm.rounds_us)
        found = {"median_us": median, "rate": work / median / 1e6, "of_baseline": paired(baseline, arm)}
        return arm.model_copy(update=found)

    ours, previous = filled(ours), filled(previous)
    arms = {"ours": ours, "previous": previous, "baseline": filled(baseline)}
    against = paired(previous, ours) if previous else None
    return {"unit": unit, "method": method, "work": work} | {
        key: value and value.model_dump() for key, value in (arms | {"against_previous": against}).items()
    }
