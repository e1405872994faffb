"""Worker side of the codegen checks: compile the kernels that a call launches, for a GPU that is absent."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import ClassVar

import triton
from triton.backends.nvidia.compiler import CUDABackend
from triton.compiler import CompiledKernel
from triton.runtime.jit import JITFunction

from grader.codegen import absent_gpu
from grader.codegen.identity import identity
from grader.system.processes import NICENESS

MAX_KERNELS = 64


class _ParsedError(Exception):
    """Ends a compilation when Triton has read the kernel, and made the first of its own languages of it."""


class _State:
    """What launches do: compile, or only read each kernel, the first time in a call that it is launched."""

    parses = False
    parsed: ClassVar[set[str]] = set()  # names of kernels


def parse_only(parses: bool) -> None:
    """Let the launches of the next call only be parsed, or compiled again."""
    _State.parses = parses
    _State.parsed.clear()


def install(arch: int, folder: str) -> None:
    """Make launches compile for sm_`arch` without running, and write PTX, cubin and facts to `folder`."""
    absent_gpu.install(arch)
    os.nice(NICENESS)
    launch, stems = JITFunction.run, dict[str, Path]()
    compile_kernel, stages_of = triton.compiler.compile, CUDABackend.add_stages

    def add_stages(self: CUDABackend, stages: dict[str, object], *more: object) -> None:
        stages_of(self, stages, *more)
        if _State.parses:
            stages.update(dict.fromkeys(stages, _stop))

    def compile_or_parse(*args: object, **options: object) -> CompiledKernel | None:
        try:
            return compile_kernel(*args, **options)
        except _ParsedError:
            return None

    def compile_only(self: JITFunction, *args: object, **options: object) -> CompiledKernel | None:
        options["warmup"] = True
        if _State.parses:
            if self.fn.__name__ not in _State.parsed:
                _State.parsed.add(self.fn.__name__)
                launch(self, *args, **options)
            return None
        kernel = launch(self, *args, **options)
        if kernel is None or (kernel.hash not in stems and len(stems) >= MAX_KERNELS):
            return kernel
        stem = stems.setdefault(kernel.hash, Path(folder) / f"kernel-{len(stems):03d}")
        if stem.with_suffix(".json").exists():  # each exercise begins with an empty folder
            return kernel
        stem.with_suffix(".ptx").write_text(kernel.asm["ptx"])
        stem.with_suffix(".cubin").write_bytes(kernel.asm["cubin"])
        facts = {
            "name": self.fn.__name__,
            "identity": identity(self.fn),
            "constants": {
                name: value for name, value in options.items() if isinstance(value, (int, str, bool))
            },
            "num_warps": kernel.metadata.num_warps,
            "num_stages": kernel.metadata.num_stages,
            "shared_bytes": kernel.metadata.shared,
        }
        stem.with_suffix(".json").write_text(json.dumps(facts))
        return kernel

    JITFunction.run = compile_only
    CUDABackend.add_stages = add_stages
    triton.compiler.compile = compile_or_parse  # a kernel takes it from there at its first launch


def _stop(*_: object) -> None:
    raise _ParsedError
