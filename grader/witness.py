"""Is it their kernel: what a call does besides the student's own kernels, seen from inside the worker.

It runs beside the student's code, so it explains honest mistakes well and binds nobody who is determined:
that is done by the static screen and the confinement.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator

import triton
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from triton.runtime.interpreter import InterpretedFunction

MAX_NAMES = 50
# Allocation, constants, views and plain copies: what host code around a kernel needs. Nothing of it computes.
HARMLESS = {
    "empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "zeros", "zeros_like",
    "new_zeros", "ones", "ones_like", "new_ones", "full", "full_like", "new_full", "fill", "fill_",
    "zero_", "arange", "randint", "scalar_tensor", "clone", "copy_", "_to_copy", "contiguous", "detach",
    "detach_", "alias", "lift_fresh", "set_", "view", "_unsafe_view", "reshape", "_reshape_alias",
    "as_strided", "t", "transpose", "permute", "expand", "slice", "select", "unsqueeze", "squeeze",
    "unbind", "split", "diagonal", "view_as_real", "_local_scalar_dense", "item", "is_pinned", "resize_",
    "record_stream", "sym_size", "sym_stride", "unfold", "narrow", "chunk", "movedim",
}  # fmt: skip


class _Operators(TorchDispatchMode):
    """Notes which torch operators run."""

    def __init__(self):
        super().__init__()
        self.seen: Counter[str] = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        if name not in HARMLESS:
            self.seen[name] += 1
        return func(*args, **(kwargs or {}))


@contextlib.contextmanager
def operators() -> Iterator[Callable[[], list[str]]]:
    """Yields what names the torch operators that have computed so far; those of the interpreter do not
    count.
    """
    run, mode = InterpretedFunction.run, _Operators()

    def interpreted(function, *args, **options):
        with _disable_current_modes():
            return run(function, *args, **options)

    InterpretedFunction.run = interpreted
    try:
        with mode:
            yield lambda: sorted(mode.seen)[:MAX_NAMES]
    finally:
        InterpretedFunction.run = run


@contextlib.contextmanager
def ghosts(file: str) -> Iterator[dict]:
    """Every Triton kernel does nothing meanwhile; yields the names of launched functions that are not of
    `file` as `foreign`, and of torch operators that computed as `operators`.
    """
    found = {"foreign": [], "operators": []}

    def no_launch(function, *_, **options):
        if options.get("warmup"):
            return None
        origin = getattr(getattr(function.fn, "__code__", None), "co_filename", "")
        if origin != file and len(found["foreign"]) < MAX_NAMES:
            found["foreign"].append(str(getattr(function.fn, "__name__", "?"))[:100])
        return None

    kinds = (triton.runtime.jit.JITFunction, InterpretedFunction)
    kept = [kind.run for kind in kinds]
    for kind in kinds:
        kind.run = no_launch
    mode = _Operators()
    try:
        with mode:
            yield found
    finally:
        for kind, run in zip(kinds, kept, strict=True):
            kind.run = run
        found["operators"] = sorted(mode.seen)[:MAX_NAMES]
