"""Square matrix products of PyTorch by dtype, on random data, with a check of their results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

SEED = 20240229
LOOK = 4  # rows and columns of the result that are compared with fp64
# The first compute capability with hardware support for the dtype; PyTorch emulates some on older GPUs.
LEAST_CAPABILITY = {"fp64": 0, "fp32": 0, "tf32": 80, "fp16": 70, "bf16": 80, "fp8": 89, "int8": 72}
TORCH_DTYPES = {
    "fp64": torch.float64,
    "fp32": torch.float32,
    "tf32": torch.float32,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
    "fp8": torch.float8_e4m3fn,
    "int8": torch.int8,
}
# Tolerance relative to the root mean square of the result: several roundings of the inputs or of the result.
# TF32 exceeds that of fp32, so that a product that was not computed in fp32 is noticed.
ALLOWED = {"fp64": 1e-11, "fp32": 1e-4, "tf32": 1e-2, "fp16": 1e-2, "bf16": 5e-2, "fp8": 1e-1, "int8": 0.0}


@dataclass(frozen=True)
class Product:
    """One product: its call, a check that returns what is wrong with its result or "", its bytes."""

    side: int
    call: Callable[[], None]
    mistake: Callable[[], str]
    bytes_needed: int


def product(dtype: str, side: int, device: str) -> Product:
    """Return A @ B.T for A and B of shape (side, side); the libraries support every dtype in this layout."""
    generator = torch.Generator(device).manual_seed(SEED)
    a, b = (_random(dtype, side, generator, device) for _ in range(2))
    multiply = _multiply(dtype, a, b.t())
    result = []

    def call():
        # The setting is process-wide, and another dtype may have changed it: each call sets it.
        torch.set_float32_matmul_precision("high" if dtype == "tf32" else "highest")
        result[:] = [multiply()]

    def mistake() -> str:
        return difference(dtype, result[0], a, b)

    return Product(side, call, mistake, 2 * a.numel() * a.element_size() + 8 * side * side)


def difference(dtype: str, got: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> str:
    """Say what differs from fp64 in a corner of A @ B.T by more than the tolerance; empty if nothing does."""
    right = a[-LOOK:].double() @ b[-LOOK:].double().t()
    error = (got[-LOOK:, -LOOK:].double() - right).abs().max()
    allowed = ALLOWED[dtype] * right.square().mean().sqrt()
    if error <= allowed:  # false for NaN
        return ""
    return f"the product in {dtype} has the error {float(error):.3g}, but {float(allowed):.3g} is allowed"


def _random(dtype: str, side: int, generator: torch.Generator, device: str) -> torch.Tensor:
    if dtype == "int8":
        return torch.randint(-128, 128, (side, side), dtype=torch.int8, generator=generator, device=device)
    drawn = TORCH_DTYPES[dtype] if dtype == "fp64" else torch.float32
    values = torch.randn(side, side, dtype=drawn, generator=generator, device=device)
    return values.to(TORCH_DTYPES[dtype])


def _multiply(dtype: str, a: torch.Tensor, b: torch.Tensor) -> Callable[[], torch.Tensor]:
    """Return the call that multiplies; fp8 uses fast accumulation, as its peak rate assumes."""
    if dtype == "int8":
        return lambda: torch._int_mm(a, b)
    if dtype == "fp8":
        one = torch.ones((), device=a.device)
        return lambda: torch._scaled_mm(a, b, one, one, out_dtype=torch.bfloat16, use_fast_accum=True)
    out = torch.empty(a.shape[0], b.shape[1], dtype=a.dtype, device=a.device)
    return lambda: torch.mm(a, b, out=out)
