# gpu-programming/triton-kernels/swiglu.py | right | right
"""SwiGLU, silu(gate) * up: each program walks along a stretch of one row."""

import torch
import triton
import triton.language as tl

STEPS = 2  # blocks that a program takes one after the other

CONFIGS = [
    triton.Config({"BLOCK": block}, num_warps=warps, num_stages=stages)
    for block, warps, stages in ((1024, 4, 1), (1024, 4, 2), (2048, 8, 1), (4096, 8, 1))
]


def fitting(configs, named_args, **kwargs):
    """Blocks no longer than the row; the first config for a short row."""
    width = named_args["n_cols"]
    return [config for config in configs if config.kwargs["BLOCK"] <= width] or configs[:1]


@triton.jit
def silu(a):
    """a * sigmoid(a), with an exponential that is never above 1."""
    e = tl.exp(-tl.abs(a))
    return a * tl.where(a >= 0, 1.0, e) / (1.0 + e)


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def swiglu_kernel(
    gate_ptr,
    up_ptr,
    out_ptr,
    n_cols,
    stride_gate,
    stride_up,
    stride_out,
    STEPS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Program (i, j): STEPS blocks of row i, from block j * STEPS on."""
    row = tl.program_id(axis=0).to(tl.int64)
    gate_ptr += row * stride_gate
    up_ptr += row * stride_up
    out_ptr += row * stride_out
    begin = tl.program_id(axis=1) * (STEPS * BLOCK)
    for step in tl.static_range(STEPS):
        cols = begin + step * BLOCK + tl.arange(0, BLOCK)
        there = cols < n_cols
        a = tl.load(gate_ptr + cols, mask=there, other=0.0).to(tl.float32)
        b = tl.load(up_ptr + cols, mask=there, other=0.0).to(tl.float32)
        tl.store(out_ptr + cols, (silu(a) * b).to(out_ptr.dtype.element_ty), mask=there)


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """silu(gate) * up for two matrices (n_rows, n_cols) of one dtype."""
    if out is None:
        out = torch.empty(gate.shape, device=gate.device, dtype=gate.dtype)
    n_rows, n_cols = gate.shape
    swiglu_kernel[lambda meta: (n_rows, triton.cdiv(n_cols, STEPS * meta["BLOCK"]))](
        gate, up, out, n_cols, gate.stride(0), up.stride(0), out.stride(0), STEPS=STEPS
    )
    return out
