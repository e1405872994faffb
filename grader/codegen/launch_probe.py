"""What the launches of a CUDA C++ file ask for, where there is no GPU: its host code runs without kernels.

The file is linked with `launch_stub.c` in place of CUDA's runtime, and its function is called with sizes and
without data. A launch that any GPU would refuse is then known before one does.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from grader.codegen.ptxas import Kernel
from grader.system.processes import run_tool

if TYPE_CHECKING:
    import torch

# Kilobytes of shared memory that one block may use, from the CUDA programming guide's table of compute
# capabilities.
SHARED_LIMIT = {75: 64, 80: 163, 86: 99, 87: 163, 89: 99, 90: 227, 100: 227, 103: 227, 110: 227}
SHARED_LIMIT |= {120: 99, 121: 99}
# Read now, because a confined worker, which links it, reads nothing of the grader's.
STUB = Path(__file__).with_name("launch_stub.c").read_text("utf-8")
LIMIT_S = 60.0
# What a launch asks for, by the stub's number: how much was asked for, and how much there is.
REFUSED = {
    1: "a block of {asked:,} threads; a block has 1 to {allowed:,}, and at most 64 along z",
    2: "a grid of {asked:,} blocks along one axis; 1 to {allowed:,} are possible there",
    3: "{asked:,} bytes of __shared__ memory with a fixed size; {allowed:,} are possible",
    4: "{asked:,} bytes of shared memory; a block has at most {allowed:,} on this GPU",
    5: "{asked:,} bytes of shared memory; beyond {allowed:,} call cudaFuncSetAttribute first",
    6: "{asked:,} registers, those of all threads of a block; a block has {allowed:,}",
}


class LaunchError(RuntimeError):
    """A launch that a GPU would refuse; `kernel` is its name, "" if unknown."""

    def __init__(self, kernel: str, words: str):
        super().__init__(f"{kernel} is launched with {words}" if kernel else f"a launch has {words}")
        self.kernel = kernel


class _Refused(ctypes.Structure):
    _fields_ = (
        ("kind", ctypes.c_int),
        ("kernel", ctypes.c_char_p),
        ("asked", ctypes.c_longlong),
        ("allowed", ctypes.c_longlong),
    )


def link(part: Path, target: Path, nvcc: Path) -> bool:
    """Link an object file with the stub; return whether that succeeded, for CUDA's runtime has more calls."""
    # Its calls reach the stub also in a process that has CUDA's runtime, as one with PyTorch for GPUs.
    flags = ("-shared", "-cudart", "none", "-Xcompiler", "-fPIC", "-Xlinker", "-Bsymbolic")
    stub = part.with_name("launch_stub.c")
    stub.write_text(STUB)
    done = run_tool([str(nvcc), *flags, str(part), str(stub), "-o", str(target)], LIMIT_S)
    return done.code == 0


class Probed:
    """A file linked with the stub: its functions take tensors, of which nothing is read or written."""

    def __init__(self, path: Path, kernels: Sequence[Kernel], shared_limit_bytes: int):
        """OSError if the file calls something that the stub does not have."""
        self._library = ctypes.CDLL(str(path))
        self._library.launch_stub_limits(ctypes.c_longlong(shared_limit_bytes))
        self._kernels = {kernel.symbol: kernel.name for kernel in kernels}
        for kernel in kernels:
            facts = map(ctypes.c_longlong, (kernel.shared_bytes, kernel.registers))
            self._library.launch_stub_kernel(kernel.symbol.encode(), *facts)

    def function(self, name: str) -> Callable[..., None]:
        """Return a C function of the file as a function of tensors; AttributeError if there is none.

        Calling it raises LaunchError for a launch that a GPU would refuse.
        """
        function = getattr(self._library, name)
        function.restype = ctypes.c_int

        def call(*inputs: torch.Tensor, sizes: Sequence[int], **outputs: torch.Tensor) -> None:
            pointers = [ctypes.c_void_p(one.data_ptr()) for one in (*inputs, *outputs.values())]
            refused = _Refused.in_dll(self._library, "launch_stub_refused")
            refused.kind = 0
            code = function(*pointers, *map(ctypes.c_longlong, sizes), ctypes.c_void_p())
            if refused.kind:
                kernel = self._kernels.get((refused.kernel or b"").decode(), "")
                words = REFUSED[refused.kind].format(asked=refused.asked, allowed=refused.allowed)
                raise LaunchError(kernel, words)
            if code:
                raise RuntimeError(f"{name} returned {code} for the sizes {', '.join(map(str, sizes))}")

        return call


def launch_line(text: str, kernel: str) -> int:
    """Return the line on which a kernel is launched first, from 1; 0 if it is not found."""
    found = re.search(rf"\b{re.escape(kernel.rpartition(':')[2])}\b[^;{{}}]*?<<<", text) if kernel else None
    return text.count("\n", 0, found.end()) + 1 if found else 0
