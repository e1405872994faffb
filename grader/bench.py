"""`make bench`: our kernels beside their peers, processes of their own for each operation, one record."""

from __future__ import annotations

import datetime
import gc
import hashlib
import importlib.metadata
import importlib.util
import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from grader import bench_rounds
from grader.bench_ops import OPS, Op, fit, label
from grader.bench_record import BenchRecord, OpRecord, summarise
from grader.gpu import Gpu
from grader.progress import Follower
from grader.results import machine
from grader.worker import picked

MEMORY_SHARE = 0.9  # of what is free: the allocator rounds up, libraries keep workspaces
CHILD_LIMIT_S = 1800.0  # a process that hangs loses its operation, not the run


@dataclass(frozen=True)
class Request:
    """What was asked for."""

    source: Path
    names: tuple[str, ...]
    quick: bool
    variants: tuple[Path, ...]
    processes: int
    command: str

    def ops(self) -> list[Op]:
        """The operations asked for, in their order; all where none is named. KeyError for an unknown name."""
        known = {op.name: op for op in OPS}
        return [known[name] for name in self.names] if self.names else list(OPS)

    def sizes(self, op: Op):
        """What is asked of one operation, before it is fitted to the memory."""
        return op.quick if self.quick else op.sizes

    def arguments(self, op: Op, number: int) -> list[str]:
        """The command line of one process."""
        words = ["bench", "--op", op.name, "--from", str(self.source), "--child", str(number)]
        words += ["--quick"] if self.quick else []
        return [*words, *(word for path in self.variants for word in ("--variants", str(path)))]


def run(request: Request, gpu: Gpu, path: Path, follower: Follower) -> BenchRecord:
    """Measure every operation, and write the record after each: what is measured is not lost."""
    record = BenchRecord(
        date=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        command=request.command,
        processes=request.processes,
        machine=machine(gpu, ""),
        cuda=torch.version.cuda,
        liger=_version("liger_kernel"),
    )
    missing = [op for op in request.ops() if not (request.source / op.file).is_file()]
    record.skipped = [f"{op.name}: there is no {op.file}" for op in missing]
    for words in record.skipped:
        follower.note(f"skipped  {words}")
    there = [op for op in request.ops() if op not in missing]
    follower.begin(request.processes * sum(len(request.sizes(op)) for op in there))
    for left, op in zip(reversed(range(len(there))), there, strict=True):
        file = request.source / op.file
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        dtype = str(op.dtype).removeprefix("torch.")
        one = OpRecord(name=op.name, dtype=dtype, unit=op.unit, file=op.file, file_sha256=digest)
        told: dict[str, list[dict]] = {}
        for number in range(request.processes):
            words = f"{op.name}  process {number + 1} of {request.processes}  {left} more operations"
            for message in _child(request.arguments(op, number)):
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


def _child(arguments: list[str]) -> Iterator[dict]:
    """The messages of one process, so that this one holds no CUDA context; the last says what ended it."""
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as errors:
        command = [sys.executable, "-m", "grader", *arguments]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as process:
            limit = threading.Timer(CHILD_LIMIT_S, process.kill)
            limit.start()
            try:
                for line in process.stdout:
                    if line.startswith('{"'):  # kernels and compilers may print, too
                        yield json.loads(line)
            except BaseException:  # whoever interrupts us does not want to wait for it
                process.kill()
                raise
            finally:
                limit.cancel()
        if process.returncode:
            errors.seek(0)
            last = (errors.read().strip().splitlines() or ["it said nothing"])[-1]
            yield {"trouble": f"ended with code {process.returncode}: {last[:200]}"}


def child(request: Request, number: int) -> None:
    """Measure one operation in this process; prints a line of JSON before each size and after it."""
    (op,) = request.ops()
    plan = bench_rounds.QUICK if request.quick else bench_rounds.Plan()

    def say(message: dict) -> None:
        print(json.dumps(message), flush=True)

    modules = {"ours": load(request.source / op.file)}
    modules |= {path.stem: load(path) for path in request.variants}
    modules = {name: module for name, module in modules.items() if hasattr(module, op.name)}
    if "ours" not in modules:
        raise SystemExit(f"{op.file} has no function {op.name}")
    gc.disable()  # a collection inside a block would cost an arm milliseconds, by chance
    free = int(MEMORY_SHARE * torch.cuda.mem_get_info()[0])
    for size in fit(op, request.sizes(op), free, plan.working_set):
        say({"running": label(size)})
        torch.compiler.reset()  # it would give up specialising after a handful of sizes
        ours = [
            arm for name, module in modules.items() for arm in op.arms(name, getattr(module, op.name), size)
        ]
        found = bench_rounds.measure(op, size, ours, bench_rounds.CudaClock(), plan, "cuda", number)
        say(found | {"configs": {name: picked(module) for name, module in modules.items()}})
        gc.collect()  # an arm refers to itself, and would keep its buffers
        torch.cuda.empty_cache()


def load(path: Path):
    """The module of a file, which may import what lies beside it."""
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    specification = importlib.util.spec_from_file_location(f"bench_{path.stem}", path)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module
