"""Worker side of the codegen checks: compile the kernels that a call launches, for a GPU that is absent."""

from __future__ import annotations

import json
import os
from pathlib import Path

from triton.compiler import CompiledKernel
from triton.runtime.jit import JITFunction

from grader.codegen import absent_gpu
from grader.codegen.identity import identity
from grader.system.processes import NICENESS

MAX_KERNELS = 64


def install(arch: int, folder: str) -> None:
    """Make launches compile for sm_`arch` without running, and write PTX, cubin and facts to `folder`."""
    absent_gpu.install(arch)
    os.nice(NICENESS)
    launch, stems = JITFunction.run, dict[str, Path]()

    def compile_only(self: JITFunction, *args: object, **options: object) -> CompiledKernel | None:
        options["warmup"] = True
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
