# gpu-programming/triton-kernels/swiglu.py | wrong everywhere | in the helper silu the branch for negative x is `x * e` with e = exp(-|x|) = exp(x), without the division by 1 + e that only the other branch has: about half of all elements, those with a negative gate, are too large in magnitude by up to a factor of 2; elements with a gate >= 0 or far below 0 are right; should be x * e / (1 + e)
"""SwiGLU with an exponential that never overflows, several blocks of a row for each program."""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"BLOCK": 1024, "STEPS": 1}, num_warps=4),
    triton.Config({"BLOCK": 1024, "STEPS": 2}, num_warps=4),
    triton.Config({"BLOCK": 2048, "STEPS": 1}, num_warps=4),
    triton.Config({"BLOCK": 2048, "STEPS": 2}, num_warps=8),
]


def fitting(configs, named_args, **kwargs):
    """The configs whose programs have no more columns than the row; for a short row the first one."""
    few = [
        config for config in configs if config.kwargs["BLOCK"] * config.kwargs["STEPS"] <= named_args["n_cols"]
    ]
    return few or configs[:1]


@triton.jit
def silu(x):
    """x times its sigmoid, with an exponent that is never positive."""
    e = tl.exp(-tl.abs(x))
    return tl.where(x < 0.0, x * e, x / (1.0 + e))


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def swiglu_kernel(
    gate_ptr, up_ptr, out_ptr,
    n_cols,
    stride_gate, stride_up, stride_out,
    BLOCK: tl.constexpr, STEPS: tl.constexpr,
):  # fmt: skip
    """A program owns STEPS neighbouring blocks of BLOCK columns of one row."""
    spans = tl.cdiv(n_cols, BLOCK * STEPS)
    row = (tl.program_id(axis=0) // spans).to(tl.int64)
    first = (tl.program_id(axis=0) % spans) * (BLOCK * STEPS)
    gate_ptr += row * stride_gate
    up_ptr += row * stride_up
    out_ptr += row * stride_out
    for step in tl.static_range(STEPS):
        cols = first + step * BLOCK + tl.arange(0, BLOCK)
        inside = cols < n_cols
        gate = tl.load(gate_ptr + cols, mask=inside, other=0.0).to(tl.float32)
        up = tl.load(up_ptr + cols, mask=inside, other=0.0).to(tl.float32)
        tl.store(out_ptr + cols, (silu(gate) * up).to(out_ptr.dtype.element_ty), mask=inside)


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """silu(gate) * up for two matrices (n_rows, n_cols) of one dtype, fp32, fp16 or bf16, columns contiguous."""
    rows, n_cols = gate.shape
    if out is None:
        out = torch.empty((rows, n_cols), dtype=gate.dtype, device=gate.device)
    grid = lambda meta: (rows * triton.cdiv(n_cols, meta["BLOCK"] * meta["STEPS"]),)
    swiglu_kernel[grid](gate, up, out, n_cols, gate.stride(0), up.stride(0), out.stride(0))
    return out
