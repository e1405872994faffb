"""EXPECT PASS from elementwise_add: blocks by tl.static_range, and a helper that checks."""

import typing as t

import torch
import triton
import triton.language as tl

CONFIG = {"BLOCK": 1024, "UNROLL": 2, "num_warps": 4}
_DTYPES = frozenset({torch.float32, torch.float16, torch.bfloat16})


def _check(*, x: torch.Tensor, y: torch.Tensor, out: t.Optional[torch.Tensor]) -> None:
    tensors = [("x", x), ("y", y)] + ([("out", out)] if out is not None else [])
    for name, tensor in tensors:
        if tensor.dim() != 1:
            raise ValueError(f"{name} has {tensor.dim()} dimensions, not one")
        if tensor.size(0) != x.size(0):
            raise ValueError(f"{name} has {tensor.size(0)} elements, x has {x.size(0)}")
        if tensor.dtype is not x.dtype:
            raise ValueError(f"{name} is {tensor.dtype}, x is {x.dtype}")
        if tensor.device != x.device:
            raise ValueError(f"{name} is on {tensor.device}, x is on {x.device}")
        if not tensor.is_contiguous():
            raise ValueError(f"{name} is not contiguous")
    if x.dtype not in _DTYPES:
        raise ValueError(f"no kernel for {x.dtype!r}")


@triton.jit
def offsets_of(block, BLOCK: tl.constexpr):
    return block.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr, UNROLL: tl.constexpr):
    pid = tl.program_id(0)
    for i in tl.static_range(UNROLL):
        offs = offsets_of(pid * UNROLL + i, BLOCK)
        ok = offs < n
        x = tl.load(x_ptr + offs, mask=ok, eviction_policy="evict_first")
        y = tl.load(y_ptr + offs, mask=ok, eviction_policy="evict_first")
        tl.store(out_ptr + offs, x + y, mask=ok)


def elementwise_add(
    x: torch.Tensor, y: torch.Tensor, *, out: t.Optional[torch.Tensor] = None
) -> torch.Tensor:
    """x + y elementwise, into `out` if there is one."""
    _check(x=x, y=y, out=out)
    out = x.new_empty(x.shape) if out is None else out
    n = x.size(0)
    per_program = CONFIG["BLOCK"] * CONFIG["UNROLL"]
    programs, rest = divmod(n, per_program)
    programs += 1 if rest else 0
    if not programs:
        return out
    add_kernel[(programs,)](x, y, out, n, **CONFIG)
    return out
