"""Audit what a call does besides the student's own kernels, from inside the worker.

It runs in the same process as the student's code, so it explains honest mistakes, but cannot stop an attack:
the static screen and the confinement do that.
"""

from __future__ import annotations

import contextlib
import re
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import FrameType
from typing import Any, TypeAlias

import torch
from torch._ops import HigherOrderOperator, OpOverload
from torch.autograd import profiler
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from triton.runtime.interpreter import InterpretedFunction
from triton.runtime.jit import JITFunction

from grader.codegen.ptxas import plain_name
from grader.worker.messages import IN_BACKWARD, AuditReport

TraceFunction: TypeAlias = Callable[[FrameType, str, Any], Any]  # as sys.settrace takes it

MAX_NAMES = 50
MOST_STEPS = 1_000_000  # that are counted
# Allocation, constants, views and plain copies, which host code around a kernel needs. None of them computes.
HARMLESS = {
    "empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "zeros", "zeros_like",
    "new_zeros", "ones", "ones_like", "new_ones", "full", "full_like", "new_full", "fill", "fill_",
    "zero_", "arange", "randint", "scalar_tensor", "clone", "copy_", "_to_copy", "contiguous", "detach",
    "detach_", "alias", "lift_fresh", "set_", "view", "_unsafe_view", "reshape", "_reshape_alias",
    "as_strided", "t", "transpose", "permute", "expand", "slice", "select", "unsqueeze", "squeeze",
    "unbind", "split", "diagonal", "view_as_real", "_local_scalar_dense", "item", "is_pinned", "resize_",
    "record_stream", "sym_size", "sym_stride", "unfold", "narrow", "chunk", "movedim",
}  # fmt: skip
# Kernels of those operators, by a part of the name that CUPTI reports.
HARMLESS_KERNELS = (
    "Memset", "Memcpy", "FillFunctor", "fill_kernel", "copy_kernel", "arange", "range_elementwise",
    "distribution_elementwise",
)  # fmt: skip
# Kernels of operators that an exercise may call, as the libraries of matrix products name them.
KERNELS_OF = {"mm": ("gemm", "gemv", "nvjet", "cutlass", "xmma", "splitK", "dot_kernel", "reduce_1Block")}


LAUNCHING = "triton_kernel_wrapper_"  # begins the names of the operators that wrap_triton calls


class _Operators(TorchDispatchMode):
    """Records which torch operators run.

    A launch through torch.library.wrap_triton is an operator of a higher order, and none that computes.
    """

    supports_higher_order_operators = True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # By PyTorch's default every worker would import torch._dynamo, which is large, at its first operator.
        return False

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()

    def __torch_dispatch__(
        self,
        func: OpOverload | HigherOrderOperator,
        types: Sequence[type],
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        if isinstance(func, HigherOrderOperator):
            if not func.name().startswith(LAUNCHING):
                self.seen.add(in_its_pass(func.name()))
            return func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        own = func.namespace not in (
            "aten",
            "prims",
        )  # an operator that the file registered around its kernels
        if name not in HARMLESS and not own:
            self.seen.add(in_its_pass(name))
        return func(*args, **(kwargs or {}))


def in_its_pass(operator: str) -> str:
    """Return the name of an operator that runs now; that of a backward pass says so."""
    return operator if torch._C._current_graph_task_id() < 0 else f"{operator}{IN_BACKWARD}"


@contextlib.contextmanager
def operators() -> Iterator[Callable[[], list[str]]]:
    """Yield a function that lists the torch operators that have computed, without the interpreter's own."""
    run, mode = InterpretedFunction.run, _Operators()

    def interpreted(function: InterpretedFunction, *args: object, **options: object) -> object:
        with _disable_current_modes():
            return run(function, *args, **options)

    InterpretedFunction.run = interpreted
    try:
        with mode:
            yield lambda: sorted(mode.seen)[:MAX_NAMES]
    finally:
        InterpretedFunction.run = run


@contextlib.contextmanager
def kernels_disabled(files: Collection[str], calls: int) -> Iterator[AuditReport]:
    """Make every Triton kernel do nothing meanwhile, in so many calls; yield a report of what else runs.

    Its `foreign` names launched functions that are not from `files`; at the end its `operators` names torch
    operators that computed, and `steps` has the bytecode instructions of `files` that ran in it.
    """
    found = AuditReport()
    steps = _Steps(files, calls)

    def no_launch(function: JITFunction | InterpretedFunction, *_: object, **options: object) -> None:
        if options.get("warmup"):
            return
        origin = getattr(getattr(function.fn, "__code__", None), "co_filename", "")
        if origin not in files and len(found.foreign) < MAX_NAMES:
            found.foreign.append(str(getattr(function.fn, "__name__", "?"))[:100])

    kinds = (JITFunction, InterpretedFunction)
    kept = [kind.run for kind in kinds]
    for kind in kinds:
        kind.run = no_launch
    mode = _Operators()
    try:
        with mode, steps:
            yield found
    finally:
        for kind, run in zip(kinds, kept, strict=True):
            kind.run = run
        found.operators = sorted(mode.seen)[:MAX_NAMES]
        found.steps = steps.of_a_call


class _Steps:
    """Counts the bytecode instructions that this thread runs of some files; up to MOST_STEPS in each call."""

    def __init__(self, files: Collection[str], calls: int):
        self._files, self._calls, self._count = files, max(1, calls), 0

    @property
    def of_a_call(self) -> int:
        """How many run in one call."""
        return -(-self._count // self._calls)

    def __enter__(self) -> None:
        sys.settrace(self._entered)

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def _entered(self, frame: FrameType, *_: Any) -> TraceFunction | None:
        if frame.f_code.co_filename not in self._files:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return self._ran

    def _ran(self, frame: FrameType, event: str, _: Any) -> TraceFunction | None:
        self._count += event == "opcode"
        if self._count > MOST_STEPS * self._calls:  # to count on would make a long computation longer
            sys.settrace(None)
            frame.f_trace_opcodes = False
            return None
        return self._ran


def _is_one_of(kernel: str, own: Collection[str]) -> bool:
    """Return whether a kernel's name from CUPTI is one of these names from ptxas.plain_name."""
    # Namespaces are ignored, because the two name an anonymous namespace differently.
    named = plain_name(kernel).removeprefix("void ").replace("(anonymous namespace)", "")
    last = re.split(r"[<(]", named, maxsplit=1)[0].split("::")[-1]
    return last in {name.split("::")[-1] for name in own}


@contextlib.contextmanager
def kernels_counted(
    files: Collection[str], may_call: Collection[str] = (), own: Collection[str] = ()
) -> Iterator[AuditReport]:
    """Compare the kernels that the GPU runs meanwhile, by CUPTI, with the launches of kernels from `files`.

    Kernels of the operators in `may_call`, and those named in `own`, do not count. Yields a report: at the
    end its `strangers` names kernels that ran more often than `files` launched them, and `uncounted` says why
    nothing is known if CUPTI is not available.
    """
    found = AuditReport()
    launched: Counter[str] = Counter()
    run = JITFunction.run

    def counted(function: JITFunction, *args: object, **options: object) -> object:
        kernel = run(function, *args, **options)
        if kernel is not None and not options.get("warmup") and function.fn.__code__.co_filename in files:
            launched[kernel.name] += 1  # not the function's name: a kernel may have another one
        return kernel

    recording = contextlib.ExitStack()
    try:
        # Not torch.profiler.profile around it, which imports parts of torch's compiler: 5 s in each worker.
        record = profiler.profile(use_device="cuda", use_cpu=False, use_kineto=True)
        recording.enter_context(record)
    except Exception as error:
        found.uncounted.append(str(error))
        yield found
        return
    JITFunction.run = counted
    try:
        yield found
        torch.cuda.synchronize()
    finally:
        JITFunction.run = run
        recording.close()
    recorded = record.kineto_results.events() if record.kineto_results else []
    kernels = Counter(
        event.name() for event in recorded if event.device_type() == torch.autograd.DeviceType.CUDA
    )
    if launched and not kernels:
        found.uncounted.append("CUPTI recorded no kernel")
    expected = [*HARMLESS_KERNELS, *(part for name in may_call for part in KERNELS_OF[name])]
    strangers = [
        name
        for name in kernels - launched
        if not any(part in name for part in expected) and not _is_one_of(name, own)
    ]
    found.strangers = strangers[:MAX_NAMES]
