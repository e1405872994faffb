"""`make profile`: what Nsight Compute counts in calls of operations of the bench, as a record and a table."""

from __future__ import annotations

import dataclasses
import hashlib
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from grader.files import replace
from grader.kernel_log import ncu, tools
from grader.kernel_log.record import KernelCounters
from grader.results import Machine, machine, now

SCHEMA_VERSION = 1
STALLS_SHOWN = 2
PROTOCOL = (
    f"Nsight Compute looks at one call, at most {ncu.LAUNCHES} launches of it, after others that compile and "
    "tune; its durations are not those of the bench: no clock is fixed (clock control none), and all caches "
    "are flushed before each pass over a kernel"
)
# What a table calls a figure, its key among the counters, and how many digits help.
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
    """A call that is asked for: an operation of the bench, its file, how a record calls that, and a size."""

    op: str
    path: Path
    file: str
    size: Mapping[str, int]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid")


class CallRecord(_Model):
    """One size of one operation: its kernels in the order of their launches, or why there are none."""

    op: str
    file: str
    file_sha256: str
    size: dict[str, int]
    kernels: list[KernelCounters] | None
    missing: str = ""


class ProfileRecord(_Model):
    """One run of `make profile`."""

    schema_version: int = SCHEMA_VERSION
    date: str
    command: str
    protocol: str = PROTOCOL
    machine: Machine
    cuda: str | None
    calls: list[CallRecord] = []

    def save(self, path: Path) -> None:
        """Write it whole or not at all."""
        replace(path, self.model_dump_json(indent=1))


def calls(source: Path, names: Sequence[str], file: Path | None, sizes: Sequence[str]) -> list[Call]:
    """The calls to profile, operation by operation; without sizes those of `make bench QUICK=1`.

    KeyError for an unknown operation, ValueError for a wrong size or a file that is not there.
    """
    from grader.bench.run import Request, size_of

    asked = [
        Request(source, tuple(names), quick=True, variants=(), processes=1, command="", file=file, size=size)
        for size in ([size_of(text) for text in sizes] or [None])
    ]
    ops, *_ = [request.ops() for request in asked]  # the same for each, but each may have a wrong size
    for op in ops:
        if not asked[0].ours(op).is_file():
            raise ValueError(f"--op {op.name}: there is no {asked[0].ours(op)}")
    return [
        Call(op.name, request.ours(op), request.named(op), size)
        for op in ops
        for request in asked
        for size in request.sizes(op)
    ]


def run(asked: Sequence[Call], gpu, command: str, path: Path, follower) -> ProfileRecord:
    """Profile every call, and write the record after each: what is counted is not lost."""
    import torch

    from grader.bench.ops import label

    record = ProfileRecord(date=now(), command=command, machine=machine(gpu, ""), cuda=torch.version.cuda)
    follower.begin(len(asked))
    refused = None
    for number, call in enumerate(asked, start=1):
        words = f"{call.op}  {label(call.size)}"
        follower.running(f"{number} of {len(asked)}", words)
        one = dataclasses.asdict(call)
        one["file_sha256"] = hashlib.sha256(one.pop("path").read_bytes()).hexdigest()
        # A folder for each: a library that lies there already is taken for that of any file of its name.
        with tempfile.TemporaryDirectory() as folder:
            profile = refused or tools.profile(call.op, call.path, call.size, Path(folder))
        if profile.missing == ncu.PERMISSION:
            refused = profile  # every other call would be, too, each after it has been compiled and tuned
        record.calls.append(CallRecord(kernels=profile.kernels, missing=profile.missing, **one))
        record.save(path)
        told = ", ".join(kernel.name for kernel in profile.kernels or ()) or profile.missing
        follower.note(f"{words}  {told}")
        follower.done()
    return record


def profile_table(path: Path) -> str:
    """What stands in a README for the record at `path`."""
    return render(ProfileRecord.model_validate_json(path.read_text("utf-8")))


def render(record: ProfileRecord) -> str:
    """A row a kernel, then what could not be counted, and where and how the rest was."""
    rows = [(call, kernel) for call in record.calls for kernel in call.kernels or ()]
    lines = []
    if rows:
        heads = " | ".join(name for name, _, _ in COLUMNS)
        lines += [f"| operation | size | kernel | {heads} | stalls, most first |"]
        lines += ["|---|---|---|" + "---:|" * len(COLUMNS) + "---|", *(_row(*row) for row in rows), ""]
    missing: dict[str, list[str]] = {}
    for call in record.calls:
        if not call.kernels:
            missing.setdefault(call.missing, []).append(f"{call.op}, {_size(call)}")
    for why, ones in missing.items():
        lines += [f"Not counted: {'; '.join(ones)}: {why.rstrip('.')}.", ""]
    where = f"{record.machine.words}, CUDA {record.cuda or 'none'}, {record.date[:10]}"
    return "\n".join([*lines, f"{where}. {record.protocol}.", ""])


def _row(call: CallRecord, kernel: KernelCounters) -> str:
    cells = [call.op, _size(call), f"`{kernel.name}`"]
    for _, key, digits in COLUMNS:
        figure = kernel.figures.get(key)
        cells.append(f"{figure.value:,.{digits}f}" if figure else "-")
    stalls = list(kernel.stalls.items())[:STALLS_SHOWN]
    words = ", ".join(f"`{name}` {figure.value:.2f}" for name, figure in stalls)
    cells.append(f"{words} {stalls[0][1].unit}" if stalls else "-")  # the reasons of a kernel share a unit
    return f"| {' | '.join(cells)} |"


def _size(call: CallRecord) -> str:
    return ", ".join(f"{key}={value}" for key, value in call.size.items())
