"""`make tuning`: time every config of an autotuned kernel, and record which one its autotuner picks."""

from __future__ import annotations

import dataclasses
import hashlib
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import torch

from grader.course.skeleton import without_bonuses
from grader.grading.progress import Follower
from grader.measure.bench.ops import Op, Size, label
from grader.measure.bench.record import SizeRecord, summarise
from grader.measure.bench.run import Request, messages
from grader.report import markdown
from grader.results.records import Measurement, Model

SIDES = (1024, 2048, 4096, 8192)
WHOLE, NO_BONUS = "", "without its BONUS regions"
PROTOCOL = (
    "N(0, 1) inputs, b stored row by row; buffers rotate past 256 MB; results poisoned with NaN before each "
    "block, those of the last round checked against fp64; all configs of a size and torch.mm in one process, "
    "in turn, order reversed every other round; below 100 us a call a CUDA graph over the buffers is timed; "
    "a config is timed with nothing else in the autotuner's list; what the autotuner takes is asked of an "
    "ordinary call with its own list, before; registers, spills and PTX are those of the kernel that ran"
)


class Compiled(Model):
    """One config and what it compiled to; the last five fields are missing if it cannot run."""

    name: str  # 128x256x64, 8 warps, 3 stages
    constants: dict[str, int]
    num_warps: int
    num_stages: int
    own: bool  # in the file's own list
    error: str = ""
    registers: int | None = None  # of a thread
    spill_bytes: int | None = None  # of a thread
    shared_bytes: int | None = None  # of a program; also if that is more than the GPU has
    ptx: dict[str, int] = {}  # lines by family of instructions
    instruction: str = ""  # shape of the tensor-core instruction


class Tuned(Model):
    """One size: times by config, and the autotuner's choice."""

    picked: str  # a config's name
    tried: list[str]  # the configs that the autotuner's pruning left
    times: SizeRecord


class KernelTuning(Model):
    """One autotuned kernel that a call of the operation launches."""

    op: str
    file: str
    file_sha256: str
    part: str  # "" for the whole file, or "without its BONUS regions"
    kernel: str = ""
    configs: list[Compiled] = []
    sizes: list[Tuned] = []
    troubles: list[str] = []


class TuningRecord(Measurement):
    """One run of `make tuning`."""

    made_by: ClassVar[str] = "python -m grader tuning"

    protocol: str = PROTOCOL
    kernels: list[KernelTuning] = []


@dataclass(frozen=True)
class Asked:
    """One file, or one part of it, at some sizes."""

    request: Request
    op: Op
    part: str
    wide: bool
    sizes: tuple[Size, ...]

    def arguments(self, file: Path) -> list[str]:
        """Return the command line of the process that measures it; `file` has the part."""
        words = ["tuning", "--op", self.op.name, "--from", str(self.request.source), "--file", str(file)]
        words += ["--child"] + (["--wide"] if self.wide else [])
        return [*words, *(word for size in self.sizes for word in ("--size", label(size)))]


def asked(request: Request, sizes: Iterable[Size], wide: bool) -> list[Asked]:
    """List what to measure: each file and, if it has BONUS regions, the file without them.

    Raises KeyError for an unknown operation, ValueError for one without sides m, n and k or without a file.
    """
    found = []
    for op in request.ops():
        if list(op.sizes[0]) != ["m", "n", "k"]:
            raise ValueError(f"--op {op.name}: only matrix products can be measured config by config")
        if not request.ours(op).is_file():
            raise ValueError(f"--op {op.name}: its file is missing: {request.ours(op)}")
        text = request.ours(op).read_text("utf-8")
        parts = (WHOLE, NO_BONUS) if without_bonuses(text) != text else (WHOLE,)
        squares = tuple(sizes) or tuple({"m": side, "n": side, "k": side} for side in SIDES)
        found += [Asked(request, op, part, wide, squares) for part in parts]
    return found


def run(wanted: Iterable[Asked], gpu, command: str, path: Path, follower: Follower) -> TuningRecord:
    """Measure each in a separate process, and write the record after each."""
    record = TuningRecord.begin(command, gpu, torch.version.cuda)
    wanted = list(wanted)
    follower.begin(sum(len(one.sizes) for one in wanted))
    for one in wanted:
        text = one.request.ours(one.op).read_bytes()
        kernel = KernelTuning(
            op=one.op.name,
            file=one.request.named(one.op),
            file_sha256=hashlib.sha256(text).hexdigest(),
            part=one.part,
        )
        for message in _child_messages(one):
            _store(message, kernel, one.op, (gpu.bandwidth, gpu.peak_flops), follower)
        record.kernels.append(kernel)
        record.save(path)
    return record


def _child_messages(one: Asked) -> Iterator[dict]:
    """Yield the messages of the process that measures it; a part is copied into a temporary folder."""
    file = one.request.ours(one.op)
    if one.part == WHOLE:
        yield from messages(one.arguments(file))
        return
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / file.name
        copy.write_text(without_bonuses(file.read_text("utf-8")), "utf-8")
        yield from messages(one.arguments(copy))


def _store(message: dict, kernel: KernelTuning, op: Op, peaks, follower: Follower) -> None:
    if "trouble" in message:
        kernel.troubles.append(message["trouble"])
        follower.note(f"{op.name}: {message['trouble']}")
    elif "running" in message:
        follower.running(f"{op.name} {kernel.part}".strip(), message["running"])
    elif "kernel" in message:
        kernel.kernel = message["kernel"]
        kernel.configs = [Compiled(**one) for one in message["compiled"]]
    else:
        times = summarise(op_beside_library(op), [message["found"]], peaks)
        kernel.sizes.append(Tuned(picked=message["picked"], tried=message["tried"], times=times))
        follower.done()


def op_beside_library(op: Op) -> Op:
    """Return the operation with the library as its only peer, and b only in row-major layout."""
    name = op.baselines[0]
    peers = tuple(peer for peer in op.peers if peer.name == name)
    return dataclasses.replace(op, peers=peers, baselines=(name,), transposed="")


def render(record: TuningRecord) -> str:
    """Render one row for each config and one column for each size, in TFLOP/s; the choice is in bold type."""
    parts = []
    for kernel in record.kernels:
        heads = ("config", "registers", *(one.times.size["m"] for one in kernel.sizes))
        parts.append(f"`{kernel.kernel or 'no autotuned kernel'}` of {kernel.file} {kernel.part}".strip())
        parts.append(markdown.table(heads, (_row(config, kernel) for config in kernel.configs), "lr"))
    return markdown.page([*parts, f"{record.where}. {record.protocol}."])


def _row(config: Compiled, kernel: KernelTuning) -> list[str]:
    cells = [config.name, str(config.registers or "-")]
    for one in kernel.sizes:
        arm = one.times.arms.get(config.name)
        rate = f"{arm.rate:,.0f}" if arm and arm.rate else "-"
        cells.append(f"**{rate}**" if one.picked == config.name else rate)
    return cells
