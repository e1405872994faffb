"""Every timed arm of the stored records, the data of the roofline and of the choice of a stack."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from grader.course import catalog
from grader.judge import statistics
from grader.measure.bench import ladder
from grader.measure.bench.record import AGAIN, BenchRecord, OpRecord
from grader.measure.kernel_log import store

SOLUTIONS = catalog.ROOT / "solutions"
CAPSTONE = SOLUTIONS / "gpu-programming"
SURVEY = CAPSTONE / "hardware-survey" / "survey.json"


@dataclass(frozen=True)
class Timed:
    """One arm at one size; `file` is the kernel's file, None for a library."""

    op: str
    arm: str
    file: Path | None
    size: tuple[tuple[str, int], ...]
    dtype: str
    unit: str  # of the rate: TB/s if memory-bound, TFLOP/s if compute-bound
    operations: int
    bytes_moved: int
    us: float
    ratio: float | None  # 2.0 is twice as fast as the fastest library call of its run
    percent: float | None  # of the limit given by the GPU's peak rates
    gpu: str
    source: Path
    date: str

    @property
    def words(self) -> str:
        """The size as text."""
        return ", ".join(f"{side} = {count:,}" for side, count in self.size)


@functools.cache
def bench() -> tuple[Timed, ...]:
    """Return every timed arm of the stored bench records of the labs and the capstone."""
    paths = sorted((SOLUTIONS / "results").glob("*-bench-*.json"))
    paths += sorted(CAPSTONE.glob("*/bench.json"))
    if not paths:
        raise FileNotFoundError(f"{SOLUTIONS} has no bench record")
    found = []
    for path in paths:
        record = BenchRecord.read(path)
        for op in record.ops:
            found += _arms(op, record, path)
    return tuple(found)


def _arms(op: OpRecord, record: BenchRecord, path: Path) -> Iterator[Timed]:
    for times in op.sizes:
        for name, arm in times.arms.items():
            if arm.median_us is None or name.endswith(AGAIN):
                continue  # a wrong arm has no time, and the A/A test is not an arm
            yield Timed(
                op=op.name,
                arm=name,
                file=ladder.file_of(name, op.name) if name in ladder.RUNGS else _file_of(name, op.file),
                size=tuple(times.size.items()),
                dtype=op.dtype,
                unit=op.unit,
                operations=times.operations,
                bytes_moved=times.bytes_moved,
                us=arm.median_us,
                ratio=arm.ratio,
                percent=arm.percent_of_limit,
                gpu=record.machine.gpu.name,
                source=path,
                date=record.date,
            )


@functools.cache
def _file_of(arm: str, ours: str) -> Path | None:
    """Return the file of an arm of this repository, or None for a library."""
    stem = arm.removesuffix(" NN").removesuffix(" NT")
    if stem == "ours":
        return SOLUTIONS / ours
    found = sorted((SOLUTIONS / ours).parent.rglob(f"{stem}.*"))
    return next((path for path in found if path.suffix in (".py", ".cu")), None)


@functools.cache
def logged() -> tuple[Timed, ...]:
    """Return the kernel log's steps at sizes of a bench record, which has the bytes and FLOPs of a call."""
    work = {(one.op, one.size): one for one in bench()}
    found = []
    for stored in store.steps(CAPSTONE):
        step = stored.record
        size = tuple(step.size.items())
        like = work.get((step.op, size))
        if like is None or step.timing is None or step.timing.ours.median_us is None:
            continue
        ours, gpu = step.timing.ours, step.machine.gpu
        flops = like.operations if like.unit == "TFLOP/s" else 0
        least = statistics.floor_us(like.bytes_moved, flops, gpu.bandwidth, gpu.peak_flops)
        found.append(
            Timed(
                op=step.op,
                arm="ours",
                file=CAPSTONE / step.file,
                size=size,
                dtype=like.dtype,
                unit=like.unit,
                operations=like.operations,
                bytes_moved=like.bytes_moved,
                us=ours.median_us,
                ratio=ours.of_baseline and ours.of_baseline.ratio,
                percent=100 * least / ours.median_us,
                gpu=gpu.name,
                source=stored.folder / store.RECORD,
                date=step.date,
            )
        )
    return tuple(found)


def kernels() -> list[Timed]:
    """Return this repository's kernels once for each size: the newest run, and its fastest layout."""
    best: dict[tuple, Timed] = {}
    for one in (*bench(), *logged()):
        key = one.file, one.op, one.size
        if one.file and (key not in best or (one.date, -one.us) > (best[key].date, -best[key].us)):
            best[key] = one
    return list(best.values())


def kind(file: Path) -> str:
    """Return the language of a kernel: CUDA, Gluon or Triton."""
    if file.suffix == ".cu":
        return "CUDA"
    return "Gluon" if "triton.experimental.gluon" in file.read_text("utf-8") else "Triton"


def lab(file: Path) -> str:
    """Return the part of the course that a file belongs to: `lab 3`, or `capstone`."""
    first = file.relative_to(SOLUTIONS).parts[0]
    return f"lab {first[3]}" if first.startswith("lab") else "capstone"
