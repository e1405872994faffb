"""Worker side of the codegen tier: compile what a student's own call launches, for a GPU that is absent."""

from __future__ import annotations

import json
from pathlib import Path

import triton
from triton.backends.compiler import GPUTarget
from triton.runtime.jit import JITFunction

MAX_KERNELS = 64


def install(arch: int, folder: str) -> None:
    """From now on a launch compiles for sm_`arch` and leaves its PTX, cubin and facts in `folder`; nothing
    runs.
    """

    class StandIn:
        def get_current_target(self):
            return GPUTarget("cuda", arch, 32)

        def get_current_device(self):
            return 0

        def get_current_stream(self, _device=None):
            return 0

        def get_benchmarker(self):
            return lambda call, **_: (call(), [1.0, 1.0, 1.0])[1]

    triton.runtime.driver.set_active(StandIn())
    launch, seen = JITFunction.run, set()

    def compile_only(self, *args, **options):
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
