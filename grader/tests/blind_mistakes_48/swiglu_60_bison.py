# gpu-programming/triton-kernels/swiglu.py | wrong everywhere | In `silu`, `return tl.where(x > 0, x, z) / (1.0 + z)` lacks the factor x on the negative side: it should be `tl.where(x > 0, x, x * z) / (1.0 + z)`. For every gate <= 0 the result is sigmoid(gate) * up (a missing factor gate); wrong in all cases that have a negative gate, i.e. all but perhaps 1 x 1.
"""SwiGLU, silu(gate) * up, with an exponential that cannot overflow; autotuned."""

import torch
import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)

# Columns of one step, steps of a program, warps: 8 or 16 numbers for each thread and step.
SHAPES = ((512, 1, 2), (1024, 1, 4), (1024, 2, 4), (2048, 1, 4), (2048, 2, 8))
CONFIGS = [
    triton.Config({"BLOCK": block, "STEPS": steps}, num_stages=1, num_warps=warps)
    for block, steps, warps in SHAPES
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: what a program owns is no longer than the row, the first one for a short row."""
    n_cols = named_args["n_cols"]
    return [c for c in configs if c.kwargs["BLOCK"] * c.kwargs["STEPS"] <= n_cols] or configs[:1]


@triton.jit
def silu(x):
    """x * sigmoid(x) from z = exp(-|x|), which lies between 0 and 1 on both sides of 0."""
    z = tl.exp2(-tl.abs(x) * LOG2E)
    return tl.where(x > 0, x, z) / (1.0 + z)


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def swiglu_kernel(
    gate_ptr,  # (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous
    up_ptr,  # (n_rows, n_cols) like gate
    out_ptr,  # (n_rows, n_cols) like gate
    n_cols,
    stride_gate,  # elements from one row of gate to the next
    stride_up,
    stride_out,
    BLOCK: tl.constexpr,
    STEPS: tl.constexpr,
):
    """A program owns STEPS blocks of BLOCK columns of one row."""
    pid = tl.program_id(axis=0)
    pieces = tl.cdiv(n_cols, BLOCK * STEPS)
    row = (pid // pieces).to(tl.int64)
    first = (pid % pieces) * (BLOCK * STEPS)

    gate_row = gate_ptr + row * stride_gate
    up_row = up_ptr + row * stride_up
    out_row = out_ptr + row * stride_out

    for step in tl.static_range(STEPS):
        cols = first + step * BLOCK + tl.arange(0, BLOCK)
        inside = cols < n_cols
        gate = tl.load(gate_row + cols, mask=inside, other=0.0).to(tl.float32)
        up = tl.load(up_row + cols, mask=inside, other=0.0).to(tl.float32)
        result = silu(gate) * up
        tl.store(out_row + cols, result.to(out_ptr.dtype.element_ty), mask=inside)


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """silu(gate) * up for two matrices (n_rows, n_cols) of one dtype, fp32, fp16 or bf16, columns contiguous.

    Rows may be any number of elements apart; the result goes to `out`, like gate, where one is given.
    """
    if out is None:
        out = torch.empty(gate.shape, dtype=gate.dtype, device=gate.device)
    n_rows, n_cols = gate.shape

    def grid(meta):
        return (n_rows * triton.cdiv(n_cols, meta["BLOCK"] * meta["STEPS"]),)

    swiglu_kernel[grid](gate, up, out, n_cols, gate.stride(0), up.stride(0), out.stride(0))
    return out
