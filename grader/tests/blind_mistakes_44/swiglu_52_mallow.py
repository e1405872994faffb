# gpu-programming/triton-kernels/swiglu.py | error | `(1536, 1, 4)` in `CHOICES`: `tl.arange(0, BLOCK)` in `swiglu_kernel` needs a power of two, so this config does not compile ("arange's range must be a power of 2"). It should be 1024 or 2048. Raises for rows of 1536 columns or more, where the autotuner tries it; shorter rows are right.
"""SwiGLU, silu(gate) * up, where each program unrolls a few neighbouring blocks of one row."""

import torch
import triton
import triton.language as tl

# Columns of a block, blocks of a program, warps. Rows of feed-forward layers are often multiples of 512.
CHOICES = (
    (1024, 1, 4),
    (1024, 2, 4),
    (1536, 1, 4),
    (2048, 1, 4),
    (2048, 2, 8),
    (4096, 1, 8),
)
CONFIGS = [
    triton.Config({"BLOCK": block, "TURNS": turns}, num_warps=warps) for block, turns, warps in CHOICES
]


def fitting(configs, named_args, **kwargs):
    """The configs whose programs have no more columns than a row, or the first one."""
    n_cols = named_args["n_cols"]
    return [c for c in configs if c.kwargs["BLOCK"] * c.kwargs["TURNS"] <= n_cols] or configs[:1]


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
    BLOCK: tl.constexpr,
    TURNS: tl.constexpr,
):
    """A program owns BLOCK * TURNS columns of one row, side by side."""
    parts = tl.cdiv(n_cols, BLOCK * TURNS)
    pid = tl.program_id(axis=0)
    row = (pid // parts).to(tl.int64)
    first = pid % parts * (BLOCK * TURNS)

    gate_row = gate_ptr + row * stride_gate
    up_row = up_ptr + row * stride_up
    out_row = out_ptr + row * stride_out

    for turn in tl.static_range(TURNS):
        cols = first + turn * BLOCK + tl.arange(0, BLOCK)
        inside = cols < n_cols
        gate = tl.load(gate_row + cols, mask=inside, other=0.0).to(tl.float32)
        up = tl.load(up_row + cols, mask=inside, other=0.0).to(tl.float32)
        # A large negative gate makes the denominator inf, and the quotient 0.
        result = gate / (1.0 + tl.exp(-gate)) * up
        tl.store(out_row + cols, result.to(out_ptr.dtype.element_ty), mask=inside)


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """silu(gate) * up for two matrices of one shape and dtype, their rows any number of elements apart.

    Returns `out`, or a new contiguous matrix where none is given.
    """
    n_rows, n_cols = gate.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=gate.dtype, device=gate.device)

    def grid(meta):
        columns = meta["BLOCK"] * meta["TURNS"]
        return (n_rows * triton.cdiv(n_cols, columns),)

    swiglu_kernel[grid](gate, up, out, n_cols, gate.stride(0), up.stride(0), out.stride(0))
    return out
