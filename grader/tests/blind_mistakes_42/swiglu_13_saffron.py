# gpu-programming/triton-kernels/swiglu.py | corner | `LOG2_E = tl.constexpr(1.443)`, used in `sigmoid`, has too few digits (1.4426950408889634 is right): a relative error of 2e-4 times |gate|. Shows in fp32 cases only (negative gates); in 16 bits it stays within or about the rounding, also for huge gates.
"""SwiGLU, silu(gate) * up: the blocks of a row are dealt out to a few programs, which walk over it in strides."""

import torch
import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.443)
WALK = 4  # blocks that a program takes at most, one after the other

CONFIGS = [
    triton.Config({"BLOCK": 1024}, num_warps=4),
    triton.Config({"BLOCK": 2048}, num_warps=4),
    triton.Config({"BLOCK": 2048}, num_warps=8),
    triton.Config({"BLOCK": 4096}, num_warps=8),
    triton.Config({"BLOCK": 4096}, num_warps=16),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: blocks no longer than the row, the first one for a short row."""
    return [config for config in configs if config.kwargs["BLOCK"] <= named_args["n_cols"]] or configs[:1]


@triton.jit
def sigmoid(x):
    """1 / (1 + exp(-x)), as a power of 2; of a large negative x the power is inf, and the quotient 0."""
    return 1.0 / (1.0 + tl.exp2(x * -LOG2_E))


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.heuristics({"WHOLE": lambda args: args["n_cols"] % args["BLOCK"] == 0})
@triton.jit
def swiglu_kernel(
    gate_ptr, up_ptr, out_ptr,  # (n_rows, n_cols) of one dtype, columns contiguous
    n_cols,
    stride_gate, stride_up, stride_out,  # elements from one row to the next
    BLOCK: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
    """out = gate * sigmoid(gate) * up; program (i, k) has the blocks k, k + K, k + 2 K, ... of row i.

    WHOLE: a row is whole blocks, so that no lane needs a mask.
    """
    row = tl.program_id(axis=0).to(tl.int64)
    gate_row = gate_ptr + row * stride_gate
    up_row = up_ptr + row * stride_up
    out_row = out_ptr + row * stride_out
    begin = tl.program_id(axis=1) * BLOCK
    step = tl.num_programs(axis=1) * BLOCK
    for start in range(begin, n_cols, step):
        cols = start + tl.arange(0, BLOCK)
        if WHOLE:
            gate = tl.load(gate_row + cols)
            up = tl.load(up_row + cols)
        else:
            gate = tl.load(gate_row + cols, mask=cols < n_cols, other=0.0)
            up = tl.load(up_row + cols, mask=cols < n_cols, other=0.0)
        gate = gate.to(tl.float32)
        result = (gate * sigmoid(gate) * up.to(tl.float32)).to(out_ptr.dtype.element_ty)
        if WHOLE:
            tl.store(out_row + cols, result)
        else:
            tl.store(out_row + cols, result, mask=cols < n_cols)


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """silu(gate) * up for two matrices (n_rows, n_cols) of one dtype, fp32, fp16 or bf16, columns contiguous.

    Rows may be any number of elements apart; the result goes to `out`, like gate, where one is given.
    """
    n_rows, n_cols = gate.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), device=gate.device, dtype=gate.dtype)
    grid = lambda meta: (n_rows, triton.cdiv(n_cols, meta["BLOCK"] * WALK))  # noqa: E731
    swiglu_kernel[grid](gate, up, out, n_cols, gate.stride(0), up.stride(0), out.stride(0))
    return out
