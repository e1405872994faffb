# gpu-programming/triton-kernels/swiglu.py | error | The mask `rows[:, None] < n_rows & cols[None, :] < n_cols` lacks the parentheses around the two comparisons: & binds tighter, so it is a chained comparison of blocks, which does not compile (interpreter: ambiguous truth value).
"""SwiGLU, silu(gate) * up: a tile of a few rows for each program, autotuned."""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"ROWS": rows, "BLOCK": block}, num_warps=warps)
    for rows, block, warps in ((2, 1024, 4), (1, 2048, 4), (2, 2048, 8), (1, 4096, 8))
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: blocks no longer than the row, the first one for a short row."""
    return [config for config in configs if config.kwargs["BLOCK"] <= named_args["n_cols"]] or configs[:1]


@triton.autotune(configs=CONFIGS, key=["n_rows", "n_cols"], prune_configs_by={"early_config_prune": fitting})
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
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """out = gate / (1 + exp(-gate)) * up for a tile of ROWS rows and BLOCK columns."""
    col_tiles = tl.cdiv(n_cols, BLOCK)
    tile = tl.program_id(axis=0)
    rows = (tile // col_tiles).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    cols = (tile % col_tiles) * BLOCK + tl.arange(0, BLOCK)
    inside = rows[:, None] < n_rows & cols[None, :] < n_cols

    g = tl.load(gate_ptr + rows[:, None] * stride_gate + cols[None, :], mask=inside, other=0.0).to(tl.float32)
    u = tl.load(up_ptr + rows[:, None] * stride_up + cols[None, :], mask=inside, other=0.0).to(tl.float32)
    silu = g / (1.0 + tl.exp(-g))
    y = (silu * u).to(out_ptr.dtype.element_ty)
    tl.store(out_ptr + rows[:, None] * stride_out + cols[None, :], y, mask=inside)


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """silu(gate) * up for two matrices (n_rows, n_cols) of one dtype, fp32, fp16 or bf16, columns contiguous.

    Rows may be any number of elements apart; the result goes to `out`, like gate, where one is given. After
    Shazeer, arXiv:2002.05202.
    """
    out = torch.empty_like(gate) if out is None else out
    n_rows, n_cols = gate.shape

    swiglu_kernel[lambda meta: (triton.cdiv(n_rows, meta["ROWS"]) * triton.cdiv(n_cols, meta["BLOCK"]),)](
        gate, up, out, n_rows, n_cols, gate.stride(0), up.stride(0), out.stride(0)
    )
    return out
