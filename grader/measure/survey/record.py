"""The record of `make survey`: attributes of the GPU, what was measured, and what theory allows."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from grader.measure.clocks import Clocks
from grader.results.records import Measurement, Model, Words

RECORD = "survey.json"
PROTOCOL = (
    "random data; a working set is gone over many times in one launch, past the L1 caches; a figure is the "
    "median of rounds between two CUDA events after a warm-up, the launch included; what was read, copied "
    "or multiplied is checked; a round in which the GPU was throttled is taken again, as often as rounds "
    "were asked for; clocks are read after each round"
)
DTYPES = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "int8")

# Limits far beyond any GPU, so that arithmetic on a student's numbers cannot overflow.
Positive = Annotated[float, Field(ge=1e-9, le=1e20)]
Count = Annotated[int, Field(ge=0, le=2**50)]
Clock = Annotated[int, Field(ge=0, le=100_000)]  # MHz, or bits of a bus
Name = Literal["fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "int8"]


class Attributes(Model, allow_inf_nan=False):
    """Attributes of the GPU from NVML and the CUDA driver; None for those that they do not report."""

    capability: Count  # 90 for compute capability 9.0
    multiprocessors: Annotated[int, Field(ge=1, le=10_000)]
    l2_bytes: Count
    memory_bus_bits: Clock
    memory_mhz: Clock  # the highest clock, as NVML reports it: two transfers for each clock
    sm_mhz: Clock  # the highest clock
    warp_size: Count | None = None
    threads_per_multiprocessor: Count | None = None
    blocks_per_multiprocessor: Count | None = None
    registers_per_multiprocessor: Count | None = None
    shared_bytes_per_multiprocessor: Count | None = None
    shared_bytes_per_block: Count | None = None  # with opt-in
    async_engines: Count | None = None
    ecc: bool | None = None
    power_limit_watts: Positive | None = None
    pcie_generation: Count | None = None  # the highest of this GPU in this machine
    pcie_width: Count | None = None


class Timed(Model, allow_inf_nan=False):
    """The rounds of one call; `throttled` if the GPU was throttled in a round that was kept."""

    rounds_us: Annotated[list[Positive], Field(min_length=3, max_length=500)]  # microseconds of a call
    spread_us: Annotated[list[Positive], Field(min_length=3, max_length=3)]  # least, median, most
    rounds_dropped: Count
    throttled: bool
    clocks: Clocks

    @property
    def median_us(self) -> float:
        """Return the microseconds of the median round."""
        return self.spread_us[1]


class Bandwidth(Model, allow_inf_nan=False):
    """Bandwidth for one working set; for a copy both its source and its target are counted."""

    working_set_bytes: Annotated[int, Field(ge=1, le=2**50)]
    bytes_moved: Annotated[int, Field(ge=1, le=2**60)]  # by a call
    bytes_per_s: Positive
    timed: Timed


class Matmul(Model, allow_inf_nan=False):
    """The rate of one square matrix product, or why there is none."""

    dtype: Name
    status: Literal["ok", "not on this GPU", "failed"]
    reason: Words = ""
    side: Annotated[int, Field(ge=1, le=2**20)] | None = None
    flops_per_s: Positive | None = None  # operations per second for int8
    timed: Timed | None = None


class Launch(Model, allow_inf_nan=False):
    """The time to launch an empty kernel."""

    back_to_back: Timed  # for each of many launches in a row
    graph_node: Timed  # one node of a CUDA graph of many
    round_trip: Timed  # one launch and the wait for its end, by the clock of the host


class Measured(Model, allow_inf_nan=False):
    """Bandwidth curves and their plateaus (medians of their points), matmul rates, launches, ridges."""

    reads: Annotated[list[Bandwidth], Field(min_length=1, max_length=200)]
    copies: Annotated[list[Bandwidth], Field(min_length=1, max_length=200)]
    library_copy: Bandwidth  # torch's copy_, largest working set
    l2_read: Positive | None = None  # bytes/s; None if no working set is well inside the L2 cache
    l2_copy: Positive | None = None
    dram_read: Positive
    dram_copy: Positive
    matmul: Annotated[list[Matmul], Field(max_length=len(DTYPES))]
    launch: Launch
    ridges: dict[Name, Positive]  # FLOP/byte: measured rate over dram_read


class Theory(Model, allow_inf_nan=False):
    """Upper bounds: DRAM from memory clock and bus width, dense matrix rates at the highest SM clock."""

    dram_bytes_per_s: Positive | None = None
    flop_per_clock: dict[Name, Count] = {}  # of a multiprocessor
    flops_per_s: dict[Name, Positive] = {}
    ridges: dict[Name, Positive] = {}
    source: Words = ""


class SurveyRecord(Measurement, allow_inf_nan=False):
    """One run of `make survey`."""

    made_by: ClassVar[str] = "make survey"
    most_bytes: ClassVar[int] = 1 << 20

    date: Words
    command: Words
    protocol: Annotated[str, Field(max_length=1000)] = PROTOCOL
    cuda: Words | None
    quick: bool
    attributes: Attributes
    measured: Measured
    theory: Theory

    @model_validator(mode="after")
    def _names_its_gpu(self) -> SurveyRecord:
        gpu = self.machine.gpu
        if gpu is None:
            raise ValueError("machine.gpu is missing")
        for field in fields(gpu):
            value = getattr(gpu, field.name)
            if not isinstance(value, str) and not 0 <= value < 1e20:
                raise ValueError(f"machine.gpu.{field.name} is out of range")
        return self


def read(folder: Path) -> SurveyRecord:
    """Read the record of a folder; ValueError, with a message for a student, if it is missing or invalid."""
    try:
        return SurveyRecord.read(folder / RECORD)
    except FileNotFoundError:
        raise ValueError(f"there is no {RECORD}: run `make survey` on a machine with a GPU") from None
