"""`make profile`: counters of Nsight Compute for operations of the bench, as a record and a table."""

from __future__ import annotations

import dataclasses
import hashlib
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from grader.measure.bench.record import size_text
from grader.measure.kernel_log import ncu, tools
from grader.measure.kernel_log.record import KernelCounters
from grader.report import markdown
from grader.results.records import Measurement, Model

STALLS_SHOWN = 2
PROTOCOL = (
    f"Nsight Compute looks at one call, at most {ncu.LAUNCHES} launches of it, after others that compile and "
    "tune; its durations are not those of the bench: no clock is fixed (clock control none), and all caches "
    "are flushed before each pass over a kernel"
)
# Column heading, key of the counter, number of decimals.
COLUMNS = (
    ("duration, µs", "duration", 2),
    ("DRAM throughput, %", "DRAM throughput", 1),
    ("L2 hit rate, %", "L2 hit rate", 1),
    ("SM throughput, %", "SM throughput", 1),
    ("tensor pipe, %", "tensor pipe", 1),
    ("achieved occupancy, %", "achieved occupancy", 1),
    ("registers", "registers of a thread", 0),
)


@dataclasses.dataclass(frozen=True)
class Call:
    """A requested call: an operation of the bench, its file, the file's name in records, and a size."""

    op: str
    path: Path
    file: str
    size: Mapping[str, int]


class CallRecord(Model):
    """One size of one operation: its kernels in launch order, or why there are none."""

    op: str
    file: str
    file_sha256: str
    size: dict[str, int]
    kernels: list[KernelCounters] | None
    missing: str = ""


class ProfileRecord(Measurement):
    """One run of `make profile`."""

    made_by: ClassVar[str] = "make profile"

    protocol: str = PROTOCOL
    calls: list[CallRecord] = []


def calls(source: Path, names: Sequence[str], file: Path | None, sizes: Sequence[str]) -> list[Call]:
    """List the calls to profile, operation by operation; without sizes those of `make bench QUICK=1`.

    Raises KeyError for an unknown operation, ValueError for a wrong size or a missing file.
    """
    from grader.measure.bench.run import Request, size_of

    asked = [
        Request(source, tuple(names), quick=True, variants=(), processes=1, command="", file=file, size=size)
        for size in ([size_of(text) for text in sizes] or [None])
    ]
    ops, *_ = [request.ops() for request in asked]  # all equal; each request checks its own size
    for op in ops:
        if not asked[0].ours(op).is_file():
            raise ValueError(f"--op {op.name}: its file is missing: {asked[0].ours(op)}")
    return [
        Call(op.name, request.ours(op), request.named(op), size)
        for op in ops
        for request in asked
        for size in request.sizes(op)
    ]


def run(asked: Sequence[Call], gpu, command: str, path: Path, follower) -> ProfileRecord:
    """Profile every call, and write the record after each, so that an abort loses nothing."""
    import torch

    from grader.measure.bench.ops import label

    record = ProfileRecord.begin(command, gpu, torch.version.cuda)
    follower.begin(len(asked))
    refused = None
    for number, call in enumerate(asked, start=1):
        words = f"{call.op}  {label(call.size)}"
        follower.running(f"{number} of {len(asked)}", words)
        one = dataclasses.asdict(call)
        one["file_sha256"] = hashlib.sha256(one.pop("path").read_bytes()).hexdigest()
        # A folder for each: an existing library would be used for any file of the same name.
        with tempfile.TemporaryDirectory() as folder:
            profile = refused or tools.profile(call.op, call.path, call.size, Path(folder))
        if profile.missing == ncu.PERMISSION:
            refused = profile  # every other call would fail, too, after it has been compiled and tuned
        record.calls.append(CallRecord(kernels=profile.kernels, missing=profile.missing, **one))
        record.save(path)
        names = ", ".join(kernel.name for kernel in profile.kernels or ()) or profile.missing
        follower.note(f"{words}  {names}")
        follower.done()
    return record


def profile_table(path: Path) -> str:
    """Render the record at `path` for a README."""
    return render(ProfileRecord.read(path))


def render(record: ProfileRecord) -> str:
    """Render one row for each kernel, then what could not be counted, then where and how it was measured."""
    rows = [_row(call, kernel) for call in record.calls for kernel in call.kernels or ()]
    heads = ("operation", "size", "kernel", *(name for name, _, _ in COLUMNS), "stalls, most first")
    parts = [markdown.table(heads, rows, "lll" + "r" * len(COLUMNS) + "l")] if rows else []
    missing: dict[str, list[str]] = {}
    for call in record.calls:
        if not call.kernels:
            missing.setdefault(call.missing, []).append(f"{call.op}, {size_text(call.size)}")
    parts += [f"Not counted: {'; '.join(ones)}: {why.rstrip('.')}." for why, ones in missing.items()]
    return markdown.page([*parts, f"{record.where}. {record.protocol}."])


def _row(call: CallRecord, kernel: KernelCounters) -> list[str]:
    cells = [call.op, size_text(call.size), f"`{kernel.name}`"]
    for _, key, digits in COLUMNS:
        figure = kernel.figures.get(key)
        cells.append(f"{figure.value:,.{digits}f}" if figure else "-")
    stalls = list(kernel.stalls.items())[:STALLS_SHOWN]
    words = ", ".join(f"`{name}` {figure.value:.2f}" for name, figure in stalls)
    cells.append(f"{words} {stalls[0][1].unit}" if stalls else "-")  # the reasons of a kernel share a unit
    return cells
