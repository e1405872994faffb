"""Worker side of the codegen checks: compile the kernels that a call launches, for a GPU that is absent."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import CompiledKernel
from triton.runtime.jit import JITFunction

from grader.codegen.identity import identity

MAX_KERNELS = 64


class StandIn:
    """The driver of a GPU of one architecture, of which Triton only learns what it compiles for."""

    def __init__(self, arch: int):
        self._target = GPUTarget("cuda", arch, 32)

    def get_current_target(self) -> GPUTarget:
        """Return the target, as the driver of a real GPU does."""
        return self._target

    def get_current_device(self) -> int:
        """Return the number of the only device."""
        return 0

    def get_current_stream(self, _device: object = None) -> int:
        """Return CUDA's default stream."""
        return 0

    def get_benchmarker(self) -> Callable[..., list[float]]:
        """Return a benchmark for autotuned kernels that calls each config once, and finds all alike."""

        def once(call: Callable[[], object], **_: object) -> list[float]:
            call()
            return [1.0, 1.0, 1.0]

        return once


def install(arch: int, folder: str) -> None:
    """Make launches compile for sm_`arch` without running, and write PTX, cubin and facts to `folder`."""
    triton.runtime.driver.set_active(StandIn(arch))
    launch, seen = JITFunction.run, set[str]()

    def compile_only(self: JITFunction, *args: object, **options: object) -> CompiledKernel | None:
        options["warmup"] = True
        kernel = launch(self, *args, **options)
        if kernel is None or kernel.hash in seen or len(seen) >= MAX_KERNELS:
            return kernel
        stem = Path(folder) / f"kernel-{len(seen):03d}"
        seen.add(kernel.hash)
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
