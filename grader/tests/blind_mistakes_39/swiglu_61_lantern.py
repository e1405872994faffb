# gpu-programming/triton-kernels/swiglu.py | corner | The jit helper `sigmoid` computes 0.5 + 0.5 * tanh(z / 2). For a clearly negative gate tanh is next to -1 and the sum cancels: the absolute error is about 3e-8, so sigmoid loses its relative digits, and is exactly 0 below about -17. Shows in fp32 for ordinary values (gate below about -5), and in bf16 (in fp16 little or not, as such results are near its smallest numbers) for large negative gates (values=huge, gate about -11 to -87); positive and small gates and ordinary 16-bit cases are right. It should be 1 / (1 + exp(-z)), or gate / (1 + exp(-gate)).
"""SwiGLU, the gated activation between the products of a feed-forward layer: silu(gate) * up, autotuned."""

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice

# (columns of a block, warps): from 8 to 32 numbers for each thread.
SHAPES = ((1024, 4), (2048, 4), (2048, 8), (4096, 4), (4096, 8))
CONFIGS = [triton.Config({"BLOCK": block}, num_warps=warps) for block, warps in SHAPES]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: blocks no longer than the row, the first one for a short row."""
    return [config for config in configs if config.kwargs["BLOCK"] <= named_args["n_cols"]] or configs[:1]


@triton.jit
def sigmoid(z):
    """The logistic function of a block of fp32, in terms of the hyperbolic tangent."""
    return 0.5 + 0.5 * libdevice.tanh(0.5 * z)


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
):
    """out = gate * sigmoid(gate) * up; a program owns BLOCK columns of one row."""
    pid = tl.program_id(axis=0)
    per_row = tl.cdiv(n_cols, BLOCK)
    row = (pid // per_row).to(tl.int64)
    cols = (pid % per_row) * BLOCK + tl.arange(0, BLOCK)
    valid = cols < n_cols
    gate = tl.load(gate_ptr + row * stride_gate + cols, mask=valid, other=0.0).to(tl.float32)
    up = tl.load(up_ptr + row * stride_up + cols, mask=valid, other=0.0).to(tl.float32)
    result = gate * sigmoid(gate) * up
    tl.store(out_ptr + row * stride_out + cols, result.to(out_ptr.dtype.element_ty), mask=valid)


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """silu(gate) * up for two matrices (n_rows, n_cols) of one dtype, fp32, fp16 or bf16, columns contiguous.

    Rows may be any number of elements apart; the result goes to `out`, like gate, where one is given. After
    Shazeer, arXiv:2002.05202.
    """
    n_rows, n_cols = gate.shape
    if out is None:
        out = gate.new_empty((n_rows, n_cols))

    def grid(meta):
        return (n_rows * triton.cdiv(n_cols, meta["BLOCK"]),)

    swiglu_kernel[grid](gate, up, out, n_cols, gate.stride(0), up.stride(0), out.stride(0))
    return out
