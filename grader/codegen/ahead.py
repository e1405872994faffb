"""Worker side of compiling ahead: compile the kernels that calls would launch, and share the work.

All workers of one file make the same calls. The first that comes to a specialisation compiles it, into the
cache from which the workers on the GPU load it; the others pass it by.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

import triton
from triton.backends.nvidia.driver import CudaLauncher, library_dirs
from triton.compiler import ASTSource, CompiledKernel
from triton.runtime.jit import JITFunction

from grader.codegen import absent_gpu
from grader.system.processes import NICENESS

CLAIMS = "claims"  # a folder in the cache: an empty file for each thing that a worker has begun to compile


def install(arch: int) -> None:
    """Make launches compile for sm_`arch` without running; needs TRITON_CACHE_DIR in the environment."""
    absent_gpu.install(arch)
    with contextlib.suppress(Exception):  # there may be no driver; then no launcher can be built
        library_dirs()  # remembered; a confined process might not find them
    with contextlib.suppress(OSError):
        os.nice(NICENESS)
    launch, compile_kernel = JITFunction.run, triton.compiler.compile

    def compile_only(self: JITFunction, *args: object, **options: object) -> CompiledKernel | None:
        options["warmup"] = True
        return launch(self, *args, **options)

    def compile_unclaimed(
        source: ASTSource, target: object = None, options: Mapping[str, object] | None = None, **more: object
    ) -> CompiledKernel | None:
        if not _claim(f"{source.hash()} {sorted((options or {}).items())}"):
            return None
        kernel = compile_kernel(source, target=target, options=options, **more)
        _build_launcher(kernel)
        return kernel

    JITFunction.run = compile_only
    triton.compiler.compile = compile_unclaimed  # a kernel takes it from there at its first launch


def _claim(what: str) -> bool:
    """Return whether no worker of this file has claimed `what` yet; it belongs to this one then."""
    folder = Path(os.environ["TRITON_CACHE_DIR"]) / CLAIMS
    folder.mkdir(exist_ok=True)
    try:
        (folder / hashlib.sha256(what.encode()).hexdigest()).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def _build_launcher(kernel: CompiledKernel) -> None:
    """Compile the C function by which Triton 3.6 launches a kernel; later ones have one for all."""
    types, described = list(kernel.src.signature.values()), getattr(kernel.metadata, "tensordesc_meta", None)
    # A failure has no consequence: the launch will find no such function in the cache, and compile it.
    with contextlib.suppress(Exception):
        if _claim(f"launcher {types} {described}"):
            CudaLauncher(kernel.src, kernel.metadata)
