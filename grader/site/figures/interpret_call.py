"""The process that calls a student's function in Triton's interpreter, for `own_kernel`: JSON in, JSON out.

It needs TRITON_INTERPRET=1 in its environment before triton is imported.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import triton.language as tl
from triton import Config
from triton.runtime import interpreter
from triton.runtime.interpreter import InterpretedFunction

from grader.course import catalog
from grader.course.spec import Case, Exercise
from grader.judge.inputs import draw, in_dtype, numbers, tensors
from grader.measure.bench.run import load
from grader.site.figures.watcher import TooLongError, Watcher, watch_builder
from grader.worker.interpreted import every_mend
from grader.worker.witness.memory import name_of
from grader.worker.witness.recorder import recorded

SEED = 1  # of the inputs: the same at each call, so that a page changes only with the kernel
MOST_STEPS = 4000  # lines that all programs of all launches run
CLOSE = 1e-3  # of a result, absolute and relative


class Launches:
    """The launches of one call, each with the steps of its programs."""

    def __init__(self) -> None:
        self.found: list[dict[str, Any]] = []
        self._watcher: Watcher | None = None
        self._buffers: dict[str, torch.Tensor] = {}
        self._before: dict[str, dict[str, Any]] = {}  # these, as they were before the launch
        self._call: tuple[Callable[..., object], tuple[object, ...], dict[str, object]] | None = None

    @contextmanager
    def watched(self, function: InterpretedFunction, args: tuple, options: dict) -> Iterator[None]:
        """Watch one launch."""
        steps = sum(len(program) for launch in self.found for program in launch["programs"])
        self._buffers, self._before, self._call = {}, {}, (function.fn, args, options)
        self._watcher = Watcher(function.fn, self._buffers, MOST_STEPS - steps)
        watch_builder(self._watcher)
        code = function.fn.__code__
        launch: dict[str, Any] = {
            "kernel": function.fn.__name__,
            "file": code.co_filename,
            "programs": self._watcher.programs,
            "places": self._watcher.places,
            "buffers": [],
            "constants": _constants(options),
        }
        self.found.append(launch)
        before = sys.gettrace()
        sys.settrace(self._watcher.called)
        try:
            yield
        finally:
            sys.settrace(before)
            launch["buffers"] = list(self._before.values())
            self._watcher = None

    def lend(self, given: Any, value: object) -> None:
        """Note which memory an argument of the launch has; `value` is what the kernel gets for it."""
        if self._watcher is None or not isinstance(value, tl.tensor) or not isinstance(given, torch.Tensor):
            return
        assert self._call is not None
        name = name_of(given.data_ptr(), *self._call) or f"tensor {len(self._buffers) + 1}"
        self._buffers[name] = given
        self._watcher.lend(name, value.handle.dtype)
        self._before[name] = _buffer(name, given)


def _constants(options: dict) -> dict[str, int | float | str]:
    known = {name: one for name, one in options.items() if isinstance(one, int | float | str)}
    return {name: one for name, one in known.items() if name.isupper()}


def _buffer(name: str, given: torch.Tensor) -> dict[str, Any]:
    """Return a tensor as it is before the launch: what was never written is NaN, and None here."""
    shape, strides = tuple(given.shape), tuple(given.stride())
    span = (
        1 + sum((size - 1) * step for size, step in zip(shape, strides, strict=True)) if given.numel() else 0
    )
    flat = given.as_strided((span,), (1,)).double().tolist()
    values = [None if math.isnan(one) else one if math.isfinite(one) else str(one) for one in flat]
    return {
        "name": name,
        "shape": shape,
        "strides": strides,
        "values": values,
        "item_bytes": given.element_size(),
    }


def interpret(asked: dict) -> dict:
    """Call a function on small inputs; return its launches, and what is wrong with its result."""
    every_mend.apply()
    torch.use_deterministic_algorithms(True)  # what is allocated is NaN until it is written
    entry = catalog.load(Path(asked["lab_file"]))
    exercise = next(one for one in entry.lab.functions if one.name == asked["exercise"])
    case = Case(asked["params"])
    values = _readable(draw(exercise, case, SEED, "cpu"))
    launches = Launches()
    told: dict[str, Any] = {"launches": launches.found, "error": "", "result": ""}
    try:
        module = load(Path(asked["file"]))
        _set_blocks(module, asked["block"])
        function = getattr(module, asked["exercise"])
        with _watching(launches, asked["file"]):
            got = function(*tensors(values).values(), **numbers(values))
        told["result"] = _compared(exercise, values, got)
    except Exception as error:  # of the student's file: said on the page, at the line where it ended
        first = _first(error)
        told["too_long" if isinstance(first, TooLongError) else "error"] = _words(first)
    return told


def _first(error: BaseException) -> BaseException:
    """Return the error that the interpreter's own one came of."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def _words(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    if isinstance(error, TooLongError):
        return text[0]
    return f"{type(error).__name__}: {text[-1]}" if text else type(error).__name__


@contextmanager
def _watching(launches: Launches, file: str) -> Iterator[None]:
    """Record each launch; an access outside of a tensor is left out, and told."""
    with recorded({file}, range(0), only_bounds=True):
        bounded, lent = InterpretedFunction.run, interpreter._implicit_cvt

        def launched(function: InterpretedFunction, *args: Any, **options: Any) -> object:
            if options.get("warmup"):
                return bounded(function, *args, **options)
            with launches.watched(function, args, options):
                return bounded(function, *args, **options)

        def converted(given: object) -> object:
            value = lent(given)
            launches.lend(given, value)
            return value

        InterpretedFunction.run, interpreter._implicit_cvt = launched, converted
        try:
            yield
        finally:
            InterpretedFunction.run, interpreter._implicit_cvt = bounded, lent


def _set_blocks(module: Any, block: int) -> None:
    """Let a file's kernels work on small blocks: its constants with BLOCK in their name, its configs."""
    for name, value in vars(module).items():
        if "BLOCK" in name and name.isupper() and isinstance(value, int):
            setattr(module, name, block)
        configs = getattr(value, "configs", None)
        if isinstance(configs, list) and configs:
            first = configs[0]
            small = {
                key: block if "BLOCK" in key else min(one, 2) if isinstance(one, int) else one
                for key, one in first.kwargs.items()
            }
            value.configs = [Config(small, num_stages=1, num_warps=1, pre_hook=first.pre_hook)]


def _readable(values: dict) -> dict:
    """Return inputs whose values are easy to follow: 1, 2, 3 in vectors, and few digits in matrices."""
    changed = {}
    for at, (name, value) in enumerate(tensors(values).items()):
        if value.dim() == 1:
            changed[name] = torch.arange(1, len(value) + 1, dtype=value.dtype) * 10**at
        else:
            changed[name] = (value * 100).round() / 100 if value.abs().max() <= 1 else (value * 2).round() / 2
    return values | changed


def _compared(exercise: Exercise, values: dict, got: Any) -> str:
    """Say how many elements of the result are right."""
    expected = exercise.reference(**in_dtype(values, torch.float64))
    results = got if isinstance(got, tuple | list) else (got,)
    words = []
    for name, wanted, own in zip(exercise.outputs, expected, results, strict=False):
        if not isinstance(own, torch.Tensor) or own.shape != wanted.shape:
            words.append(f"{name} is no tensor of shape {tuple(wanted.shape)}.")
            continue
        right = torch.isclose(own.double(), wanted, rtol=CLOSE, atol=CLOSE)
        wrong = int((~right).sum())
        if not wrong:
            words.append(f"All {right.numel()} elements of {name} are right.")
            continue
        at = tuple(int(one) for one in (~right).nonzero()[0])
        value = float(own[at])
        shown = "never written" if math.isnan(value) else f"{value:.6g}"
        place = f"{name}[{', '.join(map(str, at))}]"
        words.append(
            f"{wrong} of {right.numel()} elements of {name} are wrong. The first is {place}: {shown}, "
            f"expected {float(wanted[at]):.6g}."
        )
    return " ".join(words)


if __name__ == "__main__":
    json.dump(interpret(json.load(sys.stdin)), sys.stdout)
