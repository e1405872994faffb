# gpu-programming/triton-kernels/swiglu.py | wrong everywhere | In `silu`, `return tl.where(x >= 0.0, x, decay) / (1.0 + decay)` lacks the factor x where x is negative: it should be `tl.where(x >= 0.0, x, x * decay)`. Shows in every element with a negative gate, so in nearly all cases (not if the only gate is positive).
"""SwiGLU, silu(gate) * up: a program owns several neighbouring blocks of one row, written out one after the other."""

import torch
import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)


def _config(block, parts, num_warps):
    """One candidate: columns of a block, blocks of a program, warps; 8 or 16 numbers of a block for each thread."""
    return triton.Config({"BLOCK": block, "PARTS": parts}, num_warps=num_warps)


CONFIGS = [
    _config(1024, 1, 4),
    _config(1024, 2, 4),
    _config(2048, 1, 4),
    _config(2048, 1, 8),
    _config(2048, 2, 8),
    _config(4096, 1, 8),
]


def fitting(configs, named_args, **kwargs):
    """The configs whose program has work in all of its blocks, the first one for a short row."""
    n_cols = named_args["n_cols"]
    return [c for c in configs if c.kwargs["BLOCK"] * c.kwargs["PARTS"] <= n_cols] or configs[:1]


@triton.jit
def silu(x):
    """x / (1 + exp(-x)), by an exponential that never exceeds 1, whatever the sign of x."""
    decay = tl.exp2(-tl.abs(x) * LOG2_E)
    return tl.where(x >= 0.0, x, decay) / (1.0 + decay)


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
    PARTS: tl.constexpr,
):
    """out = silu(gate) * up; program i has chunk i modulo the chunks of a row."""
    pid = tl.program_id(axis=0)
    chunks = tl.cdiv(n_cols, BLOCK * PARTS)
    row = (pid // chunks).to(tl.int64)
    first = (pid % chunks) * (BLOCK * PARTS)
    gate_row = gate_ptr + row * stride_gate
    up_row = up_ptr + row * stride_up
    out_row = out_ptr + row * stride_out
    for part in tl.static_range(PARTS):
        cols = first + part * BLOCK + tl.arange(0, BLOCK)
        inside = cols < n_cols
        gate = tl.load(gate_row + cols, mask=inside, other=0.0).to(tl.float32)
        up = tl.load(up_row + cols, mask=inside, other=0.0).to(tl.float32)
        result = silu(gate) * up
        tl.store(out_row + cols, result.to(out_ptr.dtype.element_ty), mask=inside)


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """silu(gate) * up for two matrices (n_rows, n_cols) of one dtype, columns contiguous, any row strides.

    The result goes to `out`, like gate, where one is given.
    """
    n_rows, n_cols = gate.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), device=gate.device, dtype=gate.dtype)
    grid = lambda meta: (n_rows * triton.cdiv(n_cols, meta["BLOCK"] * meta["PARTS"]),)  # noqa: E731
    swiglu_kernel[grid](gate, up, out, n_cols, gate.stride(0), up.stride(0), out.stride(0))
    return out
