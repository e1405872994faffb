# gpu-programming/triton-kernels/swiglu.py | corner | swiglu_kernel: of the four blocks of a program, `over` carries into the next row only once (row + 1), so where a row has one block (n_cols <= BLOCK, as for all n_cols up to 1024) the third and fourth row of every four stay unwritten; it should be row + (block + i) // blocks and (block + i) % blocks. Rows of two blocks or more are right.
"""SwiGLU, silu(gate) * up, autotuned; each program computes a few blocks in a row, so that more loads are in flight."""

import torch
import triton
import triton.language as tl

EACH = 4  # blocks of a program

CONFIGS = [
    triton.Config({"BLOCK": block}, num_warps=warps)
    for block, warps in ((1024, 4), (2048, 4), (2048, 8), (4096, 8))
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: blocks no longer than the row, the first one for a short row."""
    return [config for config in configs if config.kwargs["BLOCK"] <= named_args["n_cols"]] or configs[:1]


@triton.jit
def silu(g):
    """g * sigmoid(g); g / inf is the right 0 for a large negative g."""
    return g / (1.0 + tl.exp(-g))


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def swiglu_kernel(
    gate_ptr,
    up_ptr,
    out_ptr,
    n_rows,
    n_cols,
    stride_gate,
    stride_up,
    stride_out,
    COUNT: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The blocks of all rows are numbered one row after the other; program p has COUNT of them from p * COUNT on."""
    blocks = tl.cdiv(n_cols, BLOCK)  # of a row
    first = tl.program_id(axis=0) * COUNT
    row = first // blocks
    block = first % blocks
    for i in tl.static_range(COUNT):
        # a division for each block is slow: compare, and go on in the next row
        over = block + i >= blocks
        this_row = tl.where(over, row + 1, row)
        this_block = tl.where(over, block + i - blocks, block + i)
        cols = this_block * BLOCK + tl.arange(0, BLOCK)
        exists = (cols < n_cols) & (this_row < n_rows)
        r = this_row.to(tl.int64)
        gate = tl.load(gate_ptr + r * stride_gate + cols, mask=exists, other=0.0).to(tl.float32)
        up = tl.load(up_ptr + r * stride_up + cols, mask=exists, other=0.0).to(tl.float32)
        result = silu(gate) * up
        tl.store(out_ptr + r * stride_out + cols, result.to(out_ptr.dtype.element_ty), mask=exists)


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """silu(gate) * up for two matrices (n_rows, n_cols) of one dtype, fp32, fp16 or bf16, columns contiguous.

    Rows may be any number of elements apart; the result goes to `out`, like gate, where one is given. After
    Shazeer, arXiv:2002.05202.
    """
    out = torch.empty_like(gate) if out is None else out
    n_rows, n_cols = gate.shape
    grid = lambda meta: (triton.cdiv(n_rows * triton.cdiv(n_cols, meta["BLOCK"]), EACH),)  # noqa: E731
    swiglu_kernel[grid](
        gate, up, out, n_rows, n_cols, gate.stride(0), up.stride(0), out.stride(0), COUNT=EACH
    )
    return out
