"""`make bench`: time our kernels beside their peers, in separate processes for each operation; one record."""

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

MEMORY_SHARE = 0.9  # of the free memory: the allocator rounds up, libraries keep workspaces
CHILD_LIMIT_S = 1800.0  # if a process hangs, its operation is lost, not the run
OPS = (*bench_ops.OPS, *bench_capstone.OPS)


@dataclass(frozen=True)
class Request:
    """The options of one run."""

    source: Path
    names: tuple[str, ...]
    quick: bool
    variants: tuple[Path, ...]
    processes: int
    command: str
    lab: str | None = None  # numbers of labs, or capstone
    file: Path | None = None  # measured as ours, in place of the one in `source`
    size: Mapping[str, int] | None = None  # the only size to measure

    def ops(self) -> list[Op]:
        """Return the requested operations in order; all operations of the labs if none is named.

        Raises KeyError for an unknown name, ValueError for options that contradict each other.
        """
        asked = [op_named(name) for name in self.names] if self.names else _of_labs(self.lab)
        if self.names and self.lab:
            raise ValueError("--op and --lab exclude each other: use one of them")
        if self.file and (len(asked) != 1 or _is_native(self.file) != bool(asked[0].native)):
            raise ValueError(f"--file {self.file.name}: needs one --op whose own file has the same ending")
        for op in asked:
            sides = list(op.sizes[0])
            if self.size and (set(self.size) != set(sides) or min(self.size.values()) < 1):
                raise ValueError(f"--size {label(self.size)}: {op.name} takes {', '.join(sides)} from 1 on")
        return asked

    def sizes(self, op: Op):
        """Return the requested sizes of one operation, before they are fitted to the memory."""
        if self.size:
            return ({side: self.size[side] for side in op.sizes[0]},)
        return op.quick if self.quick else op.sizes

    def ours(self, op: Op) -> Path:
        """Return the file that is measured."""
        return self.file or op.path(self.source)

    def named(self, op: Op) -> str:
        """Return the name in records of the file that is measured, without folders of this machine."""
        if not self.file:
            return op.file
        file = self.file.resolve()
        trees = (folder for folder in (self.source.resolve(), catalog.ROOT) if file.is_relative_to(folder))
        return next((file.relative_to(folder).as_posix() for folder in trees), file.name)

    def arguments(self, op: Op, number: int) -> list[str]:
        """Return the command line of one process."""
        words = ["bench", "--op", op.name, "--from", str(self.source), "--child", str(number)]
        words += ["--quick"] if self.quick else []
        words += ["--file", str(self.file)] if self.file else []
        words += ["--size", label(self.size)] if self.size else []
        return [*words, *(word for path in self.variants for word in ("--variants", str(path)))]


def op_named(name: str) -> Op:
    """Return an operation by its name; KeyError for an unknown one."""
    return {op.name: op for op in OPS}[name]


def size_of(text: str) -> dict[str, int]:
    """Parse a size as `label` writes it; ValueError if it is malformed."""
    words = [word.partition("=") for word in text.split(",")]
    if not all(side.isidentifier() and value.isdecimal() for side, _, value in words):
        raise ValueError(f"--size {text}: write a size like m=4096,n=4096,k=4096")
    return {side: int(value) for side, _, value in words}


def _of_labs(labs: str | None) -> list[Op]:
    """Return the operations of these labs; all but the capstone's for None. ValueError if a lab has none."""
    there = dict.fromkeys(op.lab for op in OPS)
    wanted = labs.replace(",", " ").split() if labs else [lab for lab in there if lab != CAPSTONE]
    if not wanted or not set(wanted) <= set(there):
        raise ValueError(f"--lab {labs}: choose from {', '.join(there)}")
    return [op for op in OPS if op.lab in wanted]


def _is_native(file: Path) -> bool:
    return file.suffix == ".cu"


def run(request: Request, gpu: Gpu, path: Path, follower: Follower) -> BenchRecord:
    """Measure every operation, and write the record after each, so that an abort loses nothing."""
    record = BenchRecord.begin(
        request.command,
        gpu,
        torch.version.cuda,
        processes=request.processes,
        liger=_version("liger_kernel"),
    )
    missing = [op for op in request.ops() if not request.ours(op).is_file()]
    record.skipped = [f"{op.name}: {request.named(op)} is missing" for op in missing]
    for words in record.skipped:
        follower.note(f"skipped  {words}")
    there = [op for op in request.ops() if op not in missing]
    follower.begin(request.processes * sum(len(request.sizes(op)) for op in there))
    for left, op in zip(reversed(range(len(there))), there, strict=True):
        file, dtype = request.named(op), str(op.dtype).removeprefix("torch.")
        digest = hashlib.sha256(request.ours(op).read_bytes()).hexdigest()
        one = OpRecord(name=op.name, dtype=dtype, unit=op.unit, file=file, file_sha256=digest)
        sizes: dict[str, list[dict]] = {}
        for number in range(request.processes):
            words = f"{op.name}  process {number + 1} of {request.processes}  {left} more operations"
            for message in messages(request.arguments(op, number)):
                if "trouble" in message:
                    one.troubles.append(f"process {number + 1} {message['trouble']}")
                    follower.note(f"{op.name}: {one.troubles[-1]}")
                elif "running" in message:
                    follower.running(words, message["running"])
                else:
                    sizes.setdefault(label(message["size"]), []).append(message)
                    follower.done()
        one.sizes = [summarise(op, results, (gpu.bandwidth, gpu.peak_flops)) for results in sizes.values()]
        record.ops.append(one)
        record.save(path)
    return record


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def messages(arguments: list[str]) -> Iterator[dict]:
    """Run one process and yield its messages, so that this process has no CUDA context.

    If the process fails, the last message is {"trouble": reason}.
    """
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as errors:
        command, deadline = [sys.executable, "-m", "grader", *arguments], time.monotonic() + CHILD_LIMIT_S
        with Child(command, stdout=PIPE, stderr=errors) as child:
            lines = Messages(child.stdout.fileno())  # which skips what kernels and compilers print there
            while not lines.ended and (left := deadline - time.monotonic()) > 0:
                yield from lines.new(left)
            child.wait(max(0.0, deadline - time.monotonic()))
        code = child.wait()
        if code:
            errors.seek(0)
            last = (errors.read().strip().splitlines() or ["no output"])[-1]
            yield {"trouble": f"exited with code {code}: {last[:200]}"}


def child(request: Request, number: int) -> None:
    """Measure one operation in this process; print a line of JSON before and after each size."""
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
    gc.disable()  # a garbage collection inside a block would add milliseconds to an arm at random
    free = int(MEMORY_SHARE * torch.cuda.mem_get_info()[0])
    sizes = fit(op, request.sizes(op), free, plan.working_set)
    if request.size and sizes != list(request.sizes(op)):
        raise SystemExit(f"{label(request.size)} needs more memory than is free")
    for size in sizes:
        say({"running": label(size)})
        torch.compiler.reset()  # without it, torch stops specialising after a few sizes
        ours = [arm for name, function in functions.items() for arm in op.arms(name, function, size)]
        found = bench_rounds.measure(op, size, ours, bench_rounds.CudaClock(), plan, "cuda", number)
        configs = {name: picked(module) for name, module in modules.items()}
        say(found | {"configs": configs | _chosen(op, found)})
        gc.collect()  # an arm is in a reference cycle, and would keep its buffers
        torch.cuda.empty_cache()


def _chosen(op: Op, found: dict) -> dict[str, dict[str, str]]:
    """Return, by arm, the algorithms of peers that choose one."""
    able = [peer for peer in op.peers if peer.chosen and found["arms"][peer.name]["status"] == "ok"]
    return {peer.name: peer.chosen(found["size"]) for peer in able}


def load(path: Path):
    """Load a file as a module; it may import files beside it."""
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    specification = importlib.util.spec_from_file_location(f"bench_{path.stem}", path)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module
