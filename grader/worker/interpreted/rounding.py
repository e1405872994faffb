"""bf16 computes, and results are rounded as often as on a GPU.

Triton's interpreter, 3.6 to 3.9, stores bf16 as integers of 16 bits. It computes with these integers, and
cuts digits off where a GPU rounds to the nearest number, half to even. Up to 3.8 it rounds a product before
it is added in tl.fma, and has no constants in bf16. Its tl.dot takes all bits of fp32, where tensor cores
take those of TF32 unless `input_precision` says otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime import interpreter
from triton.runtime.interpreter import ReduceOps, TensorHandle

UINT16 = np.dtype(np.uint16)  # NumPy has one object for it
NAN = np.uint16(0x7FFF)
# TF32 has 10 bits behind the point, and fp32 has 23.
LOST_BY_TF32, HALF_OF_TF32 = np.uint32(0x1FFF), np.uint32(0x1000)


def round_as_a_gpu_does() -> None:
    """Compute with bf16 in fp32, and round the result; round fused operations once."""
    builder: Any = type(interpreter.interpreter_builder)
    builder.get_bf16 = lambda _, value: _narrow(np.array([value], dtype=np.float32))
    builder.cast_impl = _cast(builder.cast_impl)
    builder.create_fp_to_fp = _cast(builder.create_fp_to_fp)
    builder.unary_op = _computed(builder.unary_op, operands=1)
    builder.binary_op = _computed(builder.binary_op, operands=2)
    builder.ternary_op = _computed(builder.ternary_op, operands=3)
    builder.create_dot = _with_factors_of_a_gpu(builder.create_dot)
    ReduceOps.sum = _sum(ReduceOps.sum)
    builder.create_fma = _computed(_fma, operands=3)


def _is_bf16(handle: Any) -> bool:
    return handle.data.dtype is UINT16 and handle.dtype.scalar == tl.bfloat16


def _wide(handle: Any) -> Any:
    """Return a value in fp32, if it is in bf16; every number of bf16 is one of fp32."""
    if not _is_bf16(handle):
        return handle
    bits = handle.data.astype(np.uint32) << 16
    return TensorHandle(bits.view(np.float32), tl.float32)


def _narrow(data: np.ndarray) -> TensorHandle:
    """Return numbers of fp32 in bf16."""
    bits = np.ascontiguousarray(data, dtype=np.float32).view(np.uint32)
    rounded = ((bits + (0x7FFF + ((bits >> 16) & 1))) >> 16).astype(np.uint16)
    return TensorHandle(np.where(np.isnan(data), NAN, rounded), tl.bfloat16)


def _cast(plain: Callable[..., Any]) -> Callable[..., Any]:
    def cast(self: object, source: Any, kind: Any, *rounding: object) -> Any:
        to_bf16 = kind.scalar == tl.bfloat16
        if not (to_bf16 or _is_bf16(source)) or source.dtype.scalar.is_fp8() or kind.scalar.is_fp8():
            return plain(self, source, kind, *rounding)
        if rounding and rounding[0] not in (None, interpreter._ir.ROUNDING_MODE.RTNE):
            return plain(self, source, kind, *rounding)
        data = _wide(source).data
        return (
            _narrow(data)
            if to_bf16
            else TensorHandle(data.astype(interpreter._get_np_dtype(kind)), kind.scalar)
        )

    return cast


def _computed(plain: Callable[..., Any], operands: int) -> Callable[..., Any]:
    """Return an operation that computes with bf16 in fp32; comparisons give what they give."""

    def computed(self: object, *values: Any) -> Any:
        last = values[operands - 1]  # of a choice, the first operand is the condition
        if last.data.dtype is not UINT16 or not _is_bf16(last):
            return plain(self, *values)
        wide = [_wide(value) for value in values[:operands]]
        found = plain(self, *wide, *values[operands:])
        return TensorHandle(found.data, tl.bfloat16) if found.data.dtype == bool else _narrow(found.data)

    return computed


def _fma(_: object, x: Any, y: Any, z: Any) -> TensorHandle:
    # The product of two numbers of fp32 is exact in fp64.
    whole = x.data.astype(np.float64) * y.data + z.data
    return TensorHandle(whole.astype(z.data.dtype), z.dtype.scalar)


def _with_factors_of_a_gpu(plain: Callable[..., Any]) -> Callable[..., Any]:
    def dot(self: object, a: Any, b: Any, d: Any, precision: object, *others: object) -> Any:
        a, b = _wide(a), _wide(b)
        if precision == interpreter._ir.INPUT_PRECISION.TF32:
            a, b = _tf32(a), _tf32(b)
        return plain(self, a, b, d, precision, *others)

    return dot


def _tf32(handle: Any) -> Any:
    """Return a factor in fp32 with the 10 bits behind the point that tensor cores take of it."""
    if handle.data.dtype != np.float32:
        return handle
    bits = np.ascontiguousarray(handle.data).view(np.uint32)
    rounded = ((bits + HALF_OF_TF32) & ~LOST_BY_TF32).view(np.float32)
    return TensorHandle(np.where(np.isfinite(handle.data), rounded, handle.data), handle.dtype.scalar)


def _sum(plain: Callable[..., Any]) -> Callable[..., Any]:
    def summed(self: Any, value: Any) -> Any:
        if not _is_bf16(value.handle):
            return plain(self, value)
        found = plain(self, self.to_tensor(_wide(value.handle).data, tl.float32))
        kind = tl.block_type(tl.bfloat16, found.type.shape) if found.type.is_block() else tl.bfloat16
        return tl.tensor(_narrow(found.handle.data), kind)

    return summed
