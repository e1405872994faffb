# gpu-programming/triton-kernels/swiglu.py | wrong everywhere | the helper sigmoid returns `1.0 / (1.0 + e)` with e = exp(-abs(x)) for both signs, which is sigmoid(abs(x)); for x < 0 it should be e / (1 + e); so every element with a negative gate is wrong (gate * sigmoid(-gate) * up), about half of all, in every case, and those with gate >= 0 are right
"""silu(gate) * up in strips: a program takes STEPS blocks of a row, one after the other."""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"BLOCK": 1024, "STEPS": 1}, num_warps=4),
    triton.Config({"BLOCK": 1024, "STEPS": 2}, num_warps=4),
    triton.Config({"BLOCK": 1024, "STEPS": 4}, num_warps=4),
    triton.Config({"BLOCK": 2048, "STEPS": 2}, num_warps=8),
]


def fitting(configs, named_args, **kwargs):
    """Strips that are no longer than the row; the first config for short rows."""
    n_cols = named_args["n_cols"]
    return [c for c in configs if c.kwargs["BLOCK"] * c.kwargs["STEPS"] <= n_cols] or configs[:1]


@triton.jit
def sigmoid(x):
    """1 / (1 + exp(-x)), by an exponential that cannot overflow."""
    e = tl.exp(-tl.abs(x))
    return 1.0 / (1.0 + e)


@triton.jit
def read(row_ptr, cols, n_cols):
    return tl.load(row_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def swiglu_kernel(
    gate_ptr, up_ptr, out_ptr, n_cols, stride_gate, stride_up, stride_out,
    BLOCK: tl.constexpr, STEPS: tl.constexpr,
):  # fmt: skip
    """A program owns a strip of BLOCK * STEPS columns of one row."""
    pid = tl.program_id(axis=0)
    strips = tl.cdiv(n_cols, BLOCK * STEPS)
    row = (pid // strips).to(tl.int64)
    first = (pid % strips) * (BLOCK * STEPS) + tl.arange(0, BLOCK)
    gate_row = gate_ptr + row * stride_gate
    up_row = up_ptr + row * stride_up
    out_row = out_ptr + row * stride_out
    for step in tl.static_range(STEPS):
        cols = first + step * BLOCK
        gate = read(gate_row, cols, n_cols)
        up = read(up_row, cols, n_cols)
        value = gate * sigmoid(gate) * up
        tl.store(out_row + cols, value.to(out_row.dtype.element_ty), mask=cols < n_cols)


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """silu(gate) * up for two matrices of one shape and one dtype."""
    n_rows, n_cols = gate.shape
    if out is None:
        out = torch.empty_like(gate, memory_format=torch.contiguous_format)
    grid = lambda meta: (n_rows * triton.cdiv(n_cols, meta["BLOCK"] * meta["STEPS"]),)  # noqa: E731
    swiglu_kernel[grid](gate, up, out, n_cols, gate.stride(0), up.stride(0), out.stride(0))
    return out
