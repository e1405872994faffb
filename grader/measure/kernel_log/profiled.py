"""Make one call of a kernel for Nsight Compute, after warm-up calls, between profiler start and stop."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path

import torch

from grader.codegen import nvcc
from grader.measure.bench import run as bench
from grader.measure.bench.ops import Op
from grader.measure.bench.rounds import draw

WARM_CALLS = 3  # the first compiles and tunes


def main(arguments: list[str] | None = None) -> None:
    """Prepare, call, and profile one more call."""
    parser = argparse.ArgumentParser(prog="python -m grader.measure.kernel_log.profiled")
    parser.add_argument("--op", required=True)
    parser.add_argument("--file", type=Path, required=True)
    parser.add_argument("--size", type=bench.size_of, required=True)
    parser.add_argument("--folder", type=Path, required=True, help="folder of the compiled file")
    asked = parser.parse_args(arguments)
    op = bench.op_named(asked.op)
    arch = nvcc.arch_name(*torch.cuda.get_device_capability())
    call = call_of(op, function_of(op, asked.file, asked.folder, arch), asked.size, "cuda")
    runtime = torch.cuda.cudart()
    profile(call, torch.cuda.synchronize, runtime.cudaProfilerStart, runtime.cudaProfilerStop)


def function_of(op: Op, file: Path, folder: Path, arch: str) -> Callable:
    """Load the kernel's host function, as the bench does."""
    module = nvcc.load(file, folder, arch, runs=True) if op.native else bench.load(file)
    return getattr(module, op.symbol)


def call_of(op: Op, function: Callable, size: Mapping[str, int], device: str) -> Callable[[], object]:
    """Return a call on tensors drawn as for the bench."""
    return op.arms("profiled", function, size)[0].make(draw(op, size, device))


def profile(call: Callable, wait: Callable, start: Callable, stop: Callable) -> None:
    """Make calls until everything is compiled and tuned, then one with the profiler on."""
    for _ in range(WARM_CALLS):
        call()
    wait()
    start()
    call()
    wait()
    stop()


if __name__ == "__main__":
    main()
