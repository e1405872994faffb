"""Functions of libdevice, such as `libdevice.tanh`, compute.

In Triton's interpreter, 3.6 to 3.9, those of triton.language.extra.libdevice return None, and those of
triton.language.extra.cuda.libdevice are refused.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import triton.language as tl
from triton.language.extra import libdevice as of_any_gpu
from triton.language.extra.cuda import libdevice as of_cuda
from triton.runtime import interpreter
from triton.runtime.interpreter import TensorHandle

from grader.worker.libdevice_functions import function_of


class InterpreterLimitError(Exception):
    """Triton's interpreter has no such function; a GPU has."""


def compute_functions_of_libdevice() -> None:
    """Give the interpreter the functions, under both names of the module."""
    builder = type(interpreter.interpreter_builder)
    builder.create_extern_elementwise, builder.create_inline_asm = _computed, _no_assembly
    functions = {
        name: _in_a_kernel(member) for name, member in vars(of_cuda).items() if tl.core.is_builtin(member)
    }
    for name, function in functions.items():
        setattr(of_cuda, name, function)
    for name in _stubs(of_any_gpu):
        setattr(of_any_gpu, name, functions.get(name, _missing(name)))


def _stubs(module: ModuleType) -> list[str]:
    return [name for name, member in vars(module).items() if callable(member) and not name.startswith("_")]


def _in_a_kernel(member: Callable[..., object]) -> Callable[..., object]:
    @functools.wraps(member)
    def computed(*values: object, _semantic: object = None) -> object:
        return member(*values, _semantic=interpreter.interpreter_semantic)

    return computed


def _missing(name: str) -> Callable[..., object]:
    def refused(*_: object, **__: object) -> object:
        raise InterpreterLimitError(f"libdevice.{name} is not one of CUDA's functions")

    return refused


def _no_assembly(*_: object) -> object:
    raise InterpreterLimitError("inline assembly runs on a GPU only")


def _computed(*values: Any) -> TensorHandle:
    """Stand for InterpreterBuilder.create_extern_elementwise: symbol is a name such as `__nv_expf`."""
    _builder, _library, _path, symbol, handles, kind, _is_pure = values
    function = function_of(symbol)
    if function is None:
        raise InterpreterLimitError(f"{symbol} of libdevice runs on a GPU only")
    dtype = interpreter._get_np_dtype(kind.scalar)
    with np.errstate(all="ignore"):
        found = function(dtype, *(handle.data for handle in handles))
    return TensorHandle(np.asarray(found).astype(dtype, copy=False), kind.scalar)
