# gpu-programming/triton-kernels/swiglu.py | right | Persistent programs with a `tl.range(program_id, tiles, num_programs)` loop over two-dimensional tiles; silu by exp2 of -|v| with a `tl.where` for the sign, so that no exponential exceeds 1; masks of rows and columns; a `fitting` of its own.
"""SwiGLU by persistent programs that walk over two-dimensional tiles: silu(gate) * up, autotuned."""

import torch
import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)
MOST_PROGRAMS = 4096  # some for each multiprocessor of any GPU; each takes every 4096th tile

# ROWS * COLS numbers over 32 * warps threads: 8 or 16 for each.
CONFIGS = [
    triton.Config({"ROWS": rows, "COLS": cols}, num_warps=warps)
    for rows, cols, warps in (
        (16, 64, 4),
        (4, 256, 4),
        (1, 1024, 4),
        (2, 1024, 4),
        (1, 2048, 4),
        (1, 4096, 8),
    )
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: from a sixteenth of the row to the whole row wide, the first for a short one."""
    n_cols = named_args["n_cols"]
    few = [config for config in configs if n_cols // 16 <= config.kwargs["COLS"] <= n_cols]
    return few or (configs[:1] if n_cols < 64 else configs[-2:])


@triton.jit
def silu(v):
    """v * sigmoid(v), with an exponential that never exceeds 1."""
    e = tl.exp2(-tl.abs(v) * LOG2_E)
    return v * tl.where(v >= 0.0, 1.0, e) / (1.0 + e)


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
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
):
    """out = silu(gate) * up; tile after tile of ROWS rows and COLS columns, row of tiles by row of tiles."""
    across = tl.cdiv(n_cols, COLS)
    tiles = tl.cdiv(n_rows, ROWS) * across
    for tile in tl.range(tl.program_id(axis=0), tiles, tl.num_programs(axis=0)):
        rows = (tile // across) * ROWS + tl.arange(0, ROWS)[:, None]
        cols = (tile % across) * COLS + tl.arange(0, COLS)[None, :]
        inside = (rows < n_rows) & (cols < n_cols)
        far = rows.to(tl.int64)
        gate = tl.load(gate_ptr + far * stride_gate + cols, mask=inside, other=0.0).to(tl.float32)
        up = tl.load(up_ptr + far * stride_up + cols, mask=inside, other=0.0).to(tl.float32)
        y = silu(gate) * up
        tl.store(out_ptr + far * stride_out + cols, y.to(out_ptr.dtype.element_ty), mask=inside)


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """silu(gate) * up for two matrices (n_rows, n_cols) of one dtype, fp32, fp16 or bf16, columns contiguous.

    Rows may be any number of elements apart; the result goes to `out`, like gate, where one is given. After
    Shazeer, arXiv:2002.05202.
    """
    if out is None:
        out = torch.empty(gate.shape, dtype=gate.dtype, device=gate.device)
    n_rows, n_cols = gate.shape

    def grid(meta):
        tiles = triton.cdiv(n_rows, meta["ROWS"]) * triton.cdiv(n_cols, meta["COLS"])
        return (min(tiles, MOST_PROGRAMS),)

    swiglu_kernel[grid](
        gate, up, out, n_rows, n_cols, gate.stride(0), up.stride(0), out.stride(0)
    )
    return out
