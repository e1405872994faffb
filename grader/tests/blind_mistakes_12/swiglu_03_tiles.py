# gpu-programming/triton-kernels/swiglu.py | right | unusual: 2D tiles of ROWS x COLS (several rows a program, rows masked as well), silu in a helper function, groups of rows counted inside the tiles of columns (pid % groups is the group of rows); the kernel takes n_rows and has out first
"""SwiGLU, silu(gate) * up, in tiles that may span several rows.

For wide rows a tile is a piece of one row; for narrow rows it has several of them, so that a program has
enough to do.
"""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"ROWS": rows, "COLS": cols}, num_warps=warps)
    for rows, cols, warps in ((8, 128, 4), (4, 512, 4), (2, 1024, 8), (1, 2048, 8), (1, 4096, 8))
]


def no_wider_than_needed(configs, named_args, **kwargs):
    """Leave out tiles of which more than half would lie past the end of a row; one always stays."""
    n_cols = named_args["n_cols"]
    return [config for config in configs if config.kwargs["COLS"] < 2 * n_cols] or configs[:1]


@triton.jit
def silu(z):
    """z * sigmoid(z); exp(-z) may become inf, and the quotient is 0 then."""
    return z / (1.0 + tl.exp(-z))


@triton.autotune(
    configs=CONFIGS,
    key=["n_rows", "n_cols"],
    prune_configs_by={"early_config_prune": no_wider_than_needed},
)
@triton.jit
def swiglu_tile_kernel(
    out_ptr,
    gate_ptr,
    up_ptr,
    n_rows,
    n_cols,
    step_out,  # elements from one row of out to the next
    step_gate,
    step_up,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
):
    """One tile of out. Programs next to each other have the same columns of neighbouring groups of rows."""
    pid = tl.program_id(axis=0)
    groups = (n_rows + ROWS - 1) // ROWS
    rows = (pid % groups) * ROWS + tl.arange(0, ROWS)
    cols = (pid // groups) * COLS + tl.arange(0, COLS)
    inside = (rows < n_rows)[:, None] & (cols < n_cols)[None, :]

    rows = rows.to(tl.int64)[:, None]
    cols = cols[None, :]
    gate = tl.load(gate_ptr + rows * step_gate + cols, mask=inside, other=0.0)
    up = tl.load(up_ptr + rows * step_up + cols, mask=inside, other=0.0)
    result = up.to(tl.float32) * silu(gate.to(tl.float32))
    tl.store(out_ptr + rows * step_out + cols, result.to(out_ptr.dtype.element_ty), mask=inside)


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """silu(gate) * up for two matrices (n_rows, n_cols) of one dtype, fp32, fp16 or bf16, columns contiguous."""
    n_rows, n_cols = gate.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=gate.dtype, device=gate.device)

    # every group of rows meets every tile of columns
    grid = lambda meta: (triton.cdiv(n_rows, meta["ROWS"]) * triton.cdiv(n_cols, meta["COLS"]),)
    swiglu_tile_kernel[grid](
        out,
        gate,
        up,
        n_rows,
        n_cols,
        out.stride(0),
        gate.stride(0),
        up.stride(0),
    )
    return out
