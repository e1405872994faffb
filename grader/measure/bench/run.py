"""`make bench`: our kernels beside their peers, processes of their own for each operation, one record."""

from __future__ import annotations

import gc
import hashlib
import importlib.metadata
import importlib.util
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from grader.course import catalog
from grader.grading.progress import Follower
from grader.measure.bench import capstone as bench_capstone
from grader.measure.bench import native as bench_native
from grader.measure.bench import ops as bench_ops
from grader.measure.bench import rounds as bench_rounds
from grader.measure.bench.ops import CAPSTONE, Op, fit, label
from grader.measure.bench.record import BenchRecord, OpRecord, summarise
from grader.system.gpu import Gpu
from grader.system.processes import PIPE, Child, Messages
from grader.worker.worker import picked

MEMORY_SHARE = 0.9  # of what is free: the allocator rounds up, libraries keep workspaces
CHILD_LIMIT_S = 1800.0  # a process that hangs loses its operation, not the run
OPS = (*bench_ops.OPS, *bench_capstone.OPS)


@dataclass(frozen=True)
class Request:
    """What was asked for."""

    source: Path
    names: tuple[str, ...]
    quick: bool
    variants: tuple[Path, ...]
    processes: int
    command: str
    lab: str | None = None  # numbers of labs, or capstone
    file: Path | None = None  # measured as ours, in place of the one below `source`
    size: Mapping[str, int] | None = None  # the only one

    def ops(self) -> list[Op]:
        """The operations asked for, in their order; all of the labs where none is named.

        KeyError for an unknown name, ValueError for what does not go together.
        """
        asked = [op_named(name) for name in self.names] if self.names else _of_labs(self.lab)
        if self.names and self.lab:
            raise ValueError("--op and --lab do not go together")
        if self.file and (len(asked) != 1 or _is_native(self.file) != bool(asked[0].native)):
            raise ValueError(f"--file {self.file.name}: needs one --op, whose own file ends alike")
        for op in asked:
            sides = list(op.sizes[0])
            if self.size and (set(self.size) != set(sides) or min(self.size.values()) < 1):
                raise ValueError(f"--size {label(self.size)}: {op.name} takes {', '.join(sides)}")
        return asked

    def sizes(self, op: Op):
        """What is asked of one operation, before it is fitted to the memory."""
        if self.size:
            return ({side: self.size[side] for side in op.sizes[0]},)
        return op.quick if self.quick else op.sizes

    def ours(self, op: Op) -> Path:
        """The file that is measured."""
        return self.file or op.path(self.source)

    def named(self, op: Op) -> str:
        """How a record calls the file that is measured: no folder of this machine is part of it."""
        if not self.file:
            return op.file
        file = self.file.resolve()
        trees = (folder for folder in (self.source.resolve(), catalog.ROOT) if file.is_relative_to(folder))
        return next((file.relative_to(folder).as_posix() for folder in trees), file.name)

    def arguments(self, op: Op, number: int) -> list[str]:
        """The command line of one process."""
        words = ["bench", "--op", op.name, "--from", str(self.source), "--child", str(number)]
        words += ["--quick"] if self.quick else []
        words += ["--file", str(self.file)] if self.file else []
        words += ["--size", label(self.size)] if self.size else []
        return [*words, *(word for path in self.variants for word in ("--variants", str(path)))]


def op_named(name: str) -> Op:
    """An operation by its name; KeyError for an unknown one."""
    return {op.name: op for op in OPS}[name]


def size_of(text: str) -> dict[str, int]:
    """The size that `text` names, as `label` writes it; ValueError where it names none."""
    words = [word.partition("=") for word in text.split(",")]
    if not all(side.isidentifier() and value.isdecimal() for side, _, value in words):
        raise ValueError(f"--size {text}: a size is written like m=4096,n=4096,k=4096")
    return {side: int(value) for side, _, value in words}


def _of_labs(labs: str | None) -> list[Op]:
    """The operations of these labs; without the capstone's for None. ValueError where one has none."""
    there = dict.fromkeys(op.lab for op in OPS)
    wanted = labs.replace(",", " ").split() if labs else [lab for lab in there if lab != CAPSTONE]
    if not wanted or not set(wanted) <= set(there):
        raise ValueError(f"--lab {labs}: operations are there for {', '.join(there)}")
    return [op for op in OPS if op.lab in wanted]


def _is_native(file: Path) -> bool:
    return file.suffix == ".cu"


def run(request: Request, gpu: Gpu, path: Path, follower: Follower) -> BenchRecord:
    """Measure every operation, and write the record after each: what is measured is not lost."""
    record = BenchRecord.begin(
        request.command,
        gpu,
        torch.version.cuda,
        processes=request.processes,
        liger=_version("liger_kernel"),
    )
    missing = [op for op in request.ops() if not request.ours(op).is_file()]
    record.skipped = [f"{op.name}: there is no {request.named(op)}" for op in missing]
    for words in record.skipped:
        follower.note(f"skipped  {words}")
    there = [op for op in request.ops() if op not in missing]
    follower.begin(request.processes * sum(len(request.sizes(op)) for op in there))
    for left, op in zip(reversed(range(len(there))), there, strict=True):
        file, dtype = request.named(op), str(op.dtype).removeprefix("torch.")
        digest = hashlib.sha256(request.ours(op).read_bytes()).hexdigest()
        one = OpRecord(name=op.name, dtype=dtype, unit=op.unit, file=file, file_sha256=digest)
        told: dict[str, list[dict]] = {}
        for number in range(request.processes):
            words = f"{op.name}  process {number + 1} of {request.processes}  {left} more operations"
            for message in messages(request.arguments(op, number)):
                if "trouble" in message:
                    one.troubles.append(f"process {number + 1} {message['trouble']}")
                    follower.note(f"{op.name}: {one.troubles[-1]}")
                elif "running" in message:
                    follower.running(words, message["running"])
                else:
                    told.setdefault(label(message["size"]), []).append(message)
                    follower.done()
        one.sizes = [summarise(op, messages, (gpu.bandwidth, gpu.peak_flops)) for messages in told.values()]
        record.ops.append(one)
        record.save(path)
    return record


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def messages(arguments: list[str]) -> Iterator[dict]:
    """The messages of one process, so that this one holds no CUDA context; the last says what ended it."""
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as errors:
        command, deadline = [sys.executable, "-m", "grader", *arguments], time.monotonic() + CHILD_LIMIT_S
        with Child(command, stdout=PIPE, stderr=errors) as child:
            told = Messages(child.stdout.fileno())  # kernels and compilers may print there, too
            while not told.ended and (left := deadline - time.monotonic()) > 0:
                yield from told.new(left)
            child.wait(max(0.0, deadline - time.monotonic()))
        code = child.wait()
        if code:
            errors.seek(0)
            last = (errors.read().strip().splitlines() or ["it said nothing"])[-1]
            yield {"trouble": f"ended with code {code}: {last[:200]}"}


def child(request: Request, number: int) -> None:
    """Measure one operation in this process; prints a line of JSON before each size and after it."""
    (op,) = request.ops()
    plan = bench_rounds.QUICK if request.quick else bench_rounds.Plan()

    def say(message: dict) -> None:
        print(json.dumps(message), flush=True)

    files = {"ours": request.ours(op)} | {path.stem: path for path in request.variants}
    modules = {
        name: bench_native.load(path) if op.native else load(path)
        for name, path in files.items()
        if _is_native(path) == bool(op.native)
    }
    modules = {name: module for name, module in modules.items() if hasattr(module, op.symbol)}
    if "ours" not in modules:
        raise SystemExit(f"{request.named(op)} has no function {op.symbol}")
    functions = {name: getattr(module, op.symbol) for name, module in modules.items()}
    gc.disable()  # a collection inside a block would cost an arm milliseconds, by chance
    free = int(MEMORY_SHARE * torch.cuda.mem_get_info()[0])
    sizes = fit(op, request.sizes(op), free, plan.working_set)
    if request.size and sizes != list(request.sizes(op)):
        raise SystemExit(f"{label(request.size)} needs more memory than is free")
    for size in sizes:
        say({"running": label(size)})
        torch.compiler.reset()  # it would give up specialising after a handful of sizes
        ours = [arm for name, function in functions.items() for arm in op.arms(name, function, size)]
        found = bench_rounds.measure(op, size, ours, bench_rounds.CudaClock(), plan, "cuda", number)
        configs = {name: picked(module) for name, module in modules.items()}
        say(found | {"configs": configs | _chosen(op, found)})
        gc.collect()  # an arm refers to itself, and would keep its buffers
        torch.cuda.empty_cache()


def _chosen(op: Op, found: dict) -> dict[str, dict[str, str]]:
    """What peers that choose by themselves chose, by arm."""
    able = [peer for peer in op.peers if peer.chosen and found["arms"][peer.name]["status"] == "ok"]
    return {peer.name: peer.chosen(found["size"]) for peer in able}


def load(path: Path):
    """The module of a file, which may import what lies beside it."""
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    specification = importlib.util.spec_from_file_location(f"bench_{path.stem}", path)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module
