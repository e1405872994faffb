"""What a step of the kernel log needs from the machine: the compiler, the bench, Nsight Compute, the date."""

from __future__ import annotations

import datetime
import functools
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from grader.codegen import nvcc
from grader.measure.bench.record import BenchRecord
from grader.measure.kernel_log import ncu
from grader.measure.kernel_log.ncu_csv import plain_name
from grader.measure.kernel_log.record import Compiled
from grader.measure.kernel_log.store import LogError
from grader.system.text import one_line

Size = Mapping[str, int]


@dataclass(frozen=True)
class Tools:
    """The functions that a step calls; tests pass others."""

    op: Callable  # from a name to a grader.measure.bench.ops.Op
    compile: Callable[[Path, Path], list[Compiled]]  # CUDA file, target folder
    bench: Callable[[str, Path, Path | None, Size], BenchRecord]  # operation, file, previous step, size
    profile: Callable[[str, Path, Size, Path], ncu.Profile]  # operation, file, size, folder of `compile`
    now: Callable[[], datetime.datetime]


def tools(source: Path, gpu, follower, command: str) -> Tools:
    """Return the tools for a GPU; `source` is labs or solutions, as for `make bench`."""
    from grader.measure.bench import run as bench

    def measure(op: str, file: Path, previous: Path | None, size: Size) -> BenchRecord:
        request = bench.Request(
            source=source,
            names=(op,),
            quick=True,
            variants=(previous,) if previous else (),
            processes=1,
            command=command,
            file=file,
            size=size,
        )
        with tempfile.TemporaryDirectory() as folder:
            return bench.run(request, gpu, Path(folder) / "bench.json", follower)

    return Tools(
        bench.op_named,
        functools.partial(compile_for, nvcc.arch_name(*divmod(gpu.capability, 10))),
        measure,
        profile,
        lambda: datetime.datetime.now(datetime.timezone.utc),
    )


def profile(op: str, file: Path, size: Size, folder: Path) -> ncu.Profile:
    """Profile one call with Nsight Compute; `folder` holds the compiled CUDA file or receives it."""
    from grader.measure.bench.ops import label

    words = ["--op", op, "--file", str(file), "--size", label(size), "--folder", str(folder)]
    return ncu.profile(words, ncu.profiler())


def compile_for(arch: str, file: Path, folder: Path) -> list[Compiled]:
    """Compile a CUDA file into `folder` and describe its kernels; LogError if it does not compile."""
    from grader.codegen import kernel_facts

    try:
        nvcc.load(file, folder, arch, runs=False)
    except nvcc.BuildError as error:
        raise LogError(one_line(f"{file.name} does not compile; nothing was logged: {error}")) from None
    kernels = kernel_facts.read_native(nvcc.library(file, folder, arch), int(arch[3:].rstrip("a")))
    return [
        Compiled(
            name=plain_name(one.name),
            registers=one.registers,
            spill_bytes=one.spill_bytes,
            shared_bytes=one.shared_bytes,
        )
        for one in kernels
    ]
