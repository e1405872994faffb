"""`kernel.warmup(...)` returns a kernel that can be asked for its registers, and launched.

In Triton's interpreter, 3.6 to 3.9, it returns None: nothing is compiled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from triton.runtime.interpreter import InterpretedFunction

from grader.codegen.absent_gpu import REGISTERS, THREADS_OF_A_BLOCK

SHARED_BYTES = 1024  # of a block; not 0, because a grid is computed with it


class Metadata(NamedTuple):
    """What a compiled kernel says of itself."""

    num_warps: int = 4
    num_stages: int = 3
    num_ctas: int = 1
    shared: int = SHARED_BYTES


class WarmKernel:
    """Stands for the compiled kernel of one interpreted function."""

    n_regs, n_spills, n_max_threads = REGISTERS, 0, THREADS_OF_A_BLOCK

    def __init__(self, function: Any, metadata: Metadata):
        self._function, self.metadata = function, metadata

    def _init_handles(self) -> None:
        """Do nothing: there is no machine code to load."""

    def __getitem__(self, grid: object) -> Callable[..., object]:
        """Return what launches the kernel; it takes every parameter, constants too."""
        return lambda *args: self._function.run(*args, grid=grid, warmup=False)


def answer_for_compiled_kernels() -> None:
    """Let warmup return a kernel."""

    def warmup(self: Any, *_: object, **options: Any) -> WarmKernel:
        known = {name: options[name] for name in Metadata._fields if name in options}
        return WarmKernel(self, Metadata(**known))

    InterpretedFunction.warmup = warmup
