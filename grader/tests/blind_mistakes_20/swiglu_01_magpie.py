# gpu-programming/triton-kernels/swiglu.py | corner | silu() limits gate to [-30, 30] for the exponential, but then multiplies by the limited value as well; the factor should be the gate itself. Wrong only where |gate| is above 30: a gate of 100 counts as 30.
"""SwiGLU: silu(gate) * up in one pass, a program for some columns of one row."""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"BLOCK": block}, num_warps=warps)
    for block, warps in ((1024, 4), (2048, 4), (2048, 8), (4096, 8))
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: blocks no longer than the row, the first one for a short row."""
    return [config for config in configs if config.kwargs["BLOCK"] <= named_args["n_cols"]] or configs[:1]


@triton.jit
def silu(g):
    """g times its sigmoid, which is 0 or 1 for fp32 beyond 30."""
    g = tl.minimum(tl.maximum(g, -30.0), 30.0)
    return g / (1.0 + tl.exp(-g))


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def swiglu_kernel(gate_ptr, up_ptr, out_ptr, n_cols, stride_gate, stride_up, stride_out, BLOCK: tl.constexpr):
    """out = silu(gate) * up; program (i, j) has block j of row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    cols = tl.program_id(axis=1) * BLOCK + tl.arange(0, BLOCK)
    mask = cols < n_cols
    gate = tl.load(gate_ptr + row * stride_gate + cols, mask=mask, other=0.0).to(tl.float32)
    up = tl.load(up_ptr + row * stride_up + cols, mask=mask, other=0.0).to(tl.float32)
    result = silu(gate) * up
    tl.store(out_ptr + row * stride_out + cols, result.to(out_ptr.dtype.element_ty), mask=mask)


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """silu(gate) * up for two matrices (n_rows, n_cols) of one dtype, fp32, fp16 or bf16, columns contiguous."""
    if out is None:
        out = torch.empty_like(gate)
    n_rows, n_cols = gate.shape
    swiglu_kernel[lambda meta: (n_rows, triton.cdiv(n_cols, meta["BLOCK"]))](
        gate, up, out, n_cols, gate.stride(0), up.stride(0), out.stride(0)
    )
    return out
