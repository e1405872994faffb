"""Host code sees one set of inputs, kernels see another: the worker's half of the exchange of inputs.

The judge draws two sets of values for the inputs of a call: A, which are decoys, and B, which are graded.
Shapes, strides, dtypes and the kind of values are the same. Between kernels the lent memory holds A.

1. The worker asks the judge to show the graded inputs when a launch in the interpreter has its grid, just
   before the first program runs, and to hide them after the last one. Hooks, heuristics, pruning and grid
   functions run before that: they see A.
2. A permitted torch operator that reads an input (`clone`, `copy_`, those of `may_call`) runs in the same
   way, with the graded inputs shown. Every other operator sees A.
3. To show them, the judge writes B over A; to hide them, A over B. Only the judge holds both. It compares
   before each write, so it notices an input that was changed (grader/judge/exchange.py).
4. The judge expects f(B). What host code computes from what it can see is f(A).
5. Results of kernels come from B, and host code could read those. So each read of data by host code is
   reported with its line: of every tensor but small ones that hold only what host code put there.

The student's code runs in the same process. A file that gets past the static screen could ask for them
itself, read B while the body of its kernel runs, or read the results of its kernels without being noticed.

On a GPU nothing is exchanged: the judge writes the graded inputs when all calls wait (see gate.py).
"""

from __future__ import annotations

import contextlib
import functools
import linecache
import operator
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import FrameType
from typing import Protocol

import torch
from torch._library.custom_ops import OPDEFS
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from triton.runtime.interpreter import GridExecutor, InterpretedFunction
from triton.tools.tensor_descriptor import TensorDescriptor

from grader.worker.error_report import MAX_CODE, Frame
from grader.worker.launch_audit import HARMLESS, MAX_NAMES, in_its_pass
from grader.worker.messages import Read

MAX_READS = 8
# Operators that move the data of a tensor without computing; a view moves none.
COPIES = {"clone", "copy_", "_to_copy", "contiguous", "fill", "fill_"}
# Beginnings of the names of operators whose result is new memory with numbers of host code. The memory of
# `empty` may hold what a kernel once wrote there.
FRESH = ("zeros", "ones", "full", "new_zeros", "new_ones", "new_full", "arange", "randint", "scalar_tensor")
MOST_OWN_BYTES = 4096  # of a tensor whose values host code may read
# Operators whose result is a Python value.
TO_HOST = {
    "_local_scalar_dense": "a number is taken from a tensor",
    "item": "a number is taken from a tensor",
    "equal": "torch.equal compares two tensors",
}
# Methods that give data to Python without an operator. The first ones share memory with it.
SHARING = ("numpy", "__array__", "__dlpack__", "storage", "untyped_storage")
READING = ("tolist", "__repr__", "__reduce_ex__", "__deepcopy__", "apply_", "map_", "map2_")
NAMES = {"__array__": "a numpy array", "__repr__": "the printed form"}


class Judge(Protocol):
    """Whoever changes the contents of the lent inputs; each method returns when that is done."""

    def open(self) -> None:
        """Write the graded inputs, before a kernel."""

    def shut(self) -> None:
        """Write the decoys again, after it."""


class Watch(TorchDispatchMode):
    """Has the graded inputs shown to launches and permitted operators; records what host code reads."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # see launch_audit

    def __init__(
        self, judge: Judge, inputs: Iterable[torch.Tensor], files: Sequence[str], may_call: Iterable[str]
    ):
        super().__init__()
        self._judge, self._files, self._may_call = judge, files, frozenset(may_call)
        self._inputs = {_memory(one) for one in inputs} - {0}
        # Tensors that hold nothing but numbers of host code, by address; kept, so that no other gets one.
        self._own: dict[int, torch.Tensor] = {}
        self._depth = 0
        self.computed: dict[str, Frame | None] = {}  # where each torch operator computed first
        self.reads: list[Read] = []

    @contextlib.contextmanager
    def opened(self) -> Iterator[None]:
        """Have the graded inputs shown, unless they are, and hidden at the end."""
        self.open()
        try:
            yield
        finally:
            self.shut()

    def open(self) -> None:
        """Have the graded inputs shown; calls may be nested."""
        if self._depth == 0:
            self._judge.open()
        self._depth += 1

    def shut(self) -> None:
        """Have the decoys written again if this is the outermost call."""
        self._depth -= 1
        if self._depth == 0:
            self._judge.shut()

    def __torch_dispatch__(
        self,
        func: OpOverload,
        types: Sequence[type],
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        name, options = func.overloadpacket.__name__, kwargs or {}
        if func.namespace not in ("aten", "prims"):
            _watch_inside(func)
            return func(*args, **options)
        if _is_made_of_others(func):  # `to` and its like, within an operator that the file registered
            with self:
                return func.decompose(*args, **options)
        given = {_memory(one) for one in _tensors((*args, *options.values()))} - {0}
        if name in TO_HOST:
            if not given <= self._own.keys():
                self.read(TO_HOST[name])
        elif name not in HARMLESS:
            told = in_its_pass(name)
            if told not in self.computed:
                self.computed[told] = self._line()
        if (name in COPIES or name in self._may_call) and given & self._inputs:
            with self.opened():
                result = func(*args, **options)
        else:
            result = func(*args, **options)
        own = name.startswith(FRESH) or (bool(given) and given <= self._own.keys())
        for one in _tensors((result,)):
            if not own:
                self._own.pop(_memory(one), None)
            elif one.nbytes <= MOST_OWN_BYTES:
                self._own.setdefault(_memory(one), one)
        return result

    def launch(
        self, run: Callable[..., object], function: InterpretedFunction, args: Sequence[object],
        grid: object, options: Mapping[str, object],
    ) -> object:  # fmt: skip
        """Launch a kernel, whose programs see the graded inputs."""
        for one in _tensors((*args, *options.values())):
            self._own.pop(_memory(one), None)
        before = self._depth

        def shown(meta: object) -> object:
            size = grid(meta) if callable(grid) else grid
            if isinstance(size, tuple | list):
                # A list stays one, because the interpreter refuses it. No method of the file's runs later.
                size = list(map(_plain, size)) if isinstance(size, list) else tuple(map(_plain, size))
                self.open()
            return size

        try:
            return run(function, *args, grid=shown, warmup=False, **options)
        finally:
            while self._depth > before:
                self.shut()

    def touched(self, tensor: torch.Tensor) -> bool:
        """Return whether a tensor may hold inputs, outputs, or what was made of them."""
        return _memory(tensor) not in self._own

    def read(self, what: str) -> None:
        """Record that host code reads data."""
        if len(self.reads) < MAX_READS:
            line = self._line() or Frame(0, "", "")
            self.reads.append(Read(what, line.line, line.function, line.code))

    def from_file(self, depth: int) -> bool:
        """Return whether the caller `depth` frames up is a line of the student's files."""
        return sys._getframe(depth + 1).f_code.co_filename in self._files

    def _line(self) -> Frame | None:
        frame: FrameType | None = sys._getframe(2)
        while frame is not None and frame.f_code.co_filename not in self._files:
            frame = frame.f_back
        if frame is None:
            return None
        code = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()[:MAX_CODE]
        return Frame(frame.f_lineno, frame.f_code.co_name, code)

    def operators(self) -> list[str]:
        """Return the torch operators that computed."""
        return sorted(self.computed)[:MAX_NAMES]


_active: list[Watch] = []  # the watch of the running plan


@contextlib.contextmanager
def watched(watch: Watch) -> Iterator[Watch]:
    """Let host code see the decoys meanwhile, and kernels what is graded."""
    _install()
    _active.append(watch)
    try:
        with watch:
            yield watch
    finally:
        _active.remove(watch)


@functools.cache
def _install() -> None:
    """Replace the launch of the interpreter and the methods that give data to Python, once in a worker."""
    run = InterpretedFunction.run

    def launch(
        function: InterpretedFunction, *args: object, grid: object, warmup: bool, **options: object
    ) -> object:
        if warmup or not _active:
            return run(function, *args, grid=grid, warmup=warmup, **options)
        return _active[-1].launch(run, function, args, grid, options)

    InterpretedFunction.run = launch
    # Meant for tensors of a GPU, of which the interpreter works on copies. Here it copies memory onto itself,
    # which would touch every page of a tensor whose rows lie far apart.
    GridExecutor._restore_args_dev = lambda *_: None
    for name in (*SHARING, *READING):
        setattr(torch.Tensor, name, _noted(name, getattr(torch.Tensor, name)))


def _noted(name: str, method: Callable[..., object]) -> Callable[..., object]:
    """Return a method of tensors that records its use by host code."""

    @functools.wraps(method)
    def noted(self: torch.Tensor, *args: object, **options: object) -> object:
        if not _active:
            return method(self, *args, **options)
        watch = _active[-1]
        # Triton, torch and the grader use storages as well.
        inner = name.endswith("storage") and not watch.from_file(1)
        if self.numel() and not inner and (name in SHARING or watch.touched(self)):
            watch.read(f"{NAMES.get(name, name)} of a tensor")
        if name in SHARING:
            return method(self, *args, **options)
        with _disable_current_modes():  # to print a tensor, torch computes
            return method(self, *args, **options)

    return noted


@functools.cache
def _is_made_of_others(func: OpOverload) -> bool:
    return torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd")


def _watch_inside(func: OpOverload) -> None:
    """Let the body of an operator that the file registered run under the watch as well.

    While torch handles an operator, the mode that was asked about it is off.
    """
    definition = OPDEFS.get(func._schema.name)
    if definition is None:
        return
    for device, body in definition._backend_fns.items():
        if not hasattr(body, "watched"):
            definition._backend_fns[device] = _under_watch(body)


def _under_watch(body: Callable[..., object]) -> Callable[..., object]:
    @functools.wraps(body)
    def watched_body(*args: object, **options: object) -> object:
        if not _active:
            return body(*args, **options)
        with _active[-1]:
            return body(*args, **options)

    watched_body.watched = True  # type: ignore[attr-defined]
    return watched_body


def _plain(size: object) -> object:
    """Convert one size of a grid to an int, so that no method of an object of the file's runs later."""
    return size if isinstance(size, float | str | None) else operator.index(size)  # type: ignore[arg-type]


def _memory(tensor: torch.Tensor) -> int:
    """Return the address of a tensor's storage, 0 if it has none."""
    try:
        return torch._C.TensorBase.untyped_storage(tensor).data_ptr()
    except (RuntimeError, NotImplementedError):
        return 0


def _tensors(values: Iterable[object]) -> Iterator[torch.Tensor]:
    """Yield the tensors among values, in tuples, lists and descriptors too."""
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, tuple | list):
            yield from _tensors(value)
        elif isinstance(value, TensorDescriptor):
            yield from _tensors((value.base,))
