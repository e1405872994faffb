# gpu-programming/triton-kernels/swiglu.py | corner | swiglu treats the matrices as one long row if gate and up are contiguous (`as_rows`), but does not look at out: with contiguous inputs and an out whose rows are padded, all elements after the first row go to the wrong places, also between the rows. The condition should include out.is_contiguous().
"""SwiGLU, the gated activation between the products of a feed-forward layer: silu(gate) * up, autotuned."""

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
def silu(z):
    """z * sigmoid(z); 1 / inf is 0, so nothing can go wrong far below 0."""
    return z / (1.0 + tl.exp(-z))


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
    """out = gate / (1 + exp(-gate)) * up; a program owns BLOCK columns of one row."""
    pid = tl.program_id(axis=0)
    blocks = tl.cdiv(n_cols, BLOCK)
    row = (pid // blocks).to(tl.int64)
    # int64 here as well: a long row may be all of a matrix
    cols = (pid % blocks).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = cols < n_cols

    gate = tl.load(gate_ptr + row * stride_gate + cols, mask=mask, other=0.0).to(tl.float32)
    up = tl.load(up_ptr + row * stride_up + cols, mask=mask, other=0.0).to(tl.float32)
    result = silu(gate) * up
    tl.store(out_ptr + row * stride_out + cols, result.to(out_ptr.dtype.element_ty), mask=mask)


def as_rows(gate, up):
    """How many rows to compute, and how long they are.

    Without gaps between the rows the matrix is one long row: then only the very last block is partial, and not
    the last one of each row.
    """
    n_rows, n_cols = gate.shape
    if gate.is_contiguous() and up.is_contiguous():
        return 1, n_rows * n_cols
    return n_rows, n_cols


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """silu(gate) * up for two matrices (n_rows, n_cols) of one dtype, fp32, fp16 or bf16, columns contiguous.

    Rows may be any number of elements apart; the result goes to `out`, like gate, where one is given. After
    Shazeer, arXiv:2002.05202.
    """
    out = torch.empty_like(gate) if out is None else out
    n_rows, n_cols = as_rows(gate, up)
    grid = lambda meta: (n_rows * triton.cdiv(n_cols, meta["BLOCK"]),)  # noqa: E731
    swiglu_kernel[grid](gate, up, out, n_cols, gate.stride(0), up.stride(0), out.stride(0))
    return out
