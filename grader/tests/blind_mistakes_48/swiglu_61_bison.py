# gpu-programming/triton-kernels/swiglu.py | right | Two-dimensional tiles ROWS x COLS of a fixed area, whose form comes from `triton.heuristics` (many short rows or a part of a long one), `tl.sigmoid`, no pruning; the grid computes the same form on the host.
"""SwiGLU on two-dimensional tiles: many short rows, or a part of one long row; autotuned."""

import torch
import triton
import triton.language as tl


def _config(tile, warps):
    return triton.Config({"TILE": tile}, num_stages=1, num_warps=warps)


# Elements of a tile, whatever its form: 8 to 32 for each thread.
CONFIGS = [_config(1024, 4), _config(2048, 4), _config(2048, 8), _config(4096, 4), _config(4096, 8)]


def tile_cols(args):
    """Columns of a tile: the whole row where it fits."""
    return min(triton.next_power_of_2(args["n_cols"]), args["TILE"])


def tile_rows(args):
    """Rows of a tile: as many as fill it."""
    return args["TILE"] // tile_cols(args)


@triton.autotune(configs=CONFIGS, key=["n_rows", "n_cols"])
@triton.heuristics({"COLS": tile_cols, "ROWS": tile_rows})
@triton.jit
def swiglu_kernel(
    gate_ptr, up_ptr, out_ptr,  # (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous
    n_rows, n_cols,
    stride_gate, stride_up, stride_out,  # elements from one row to the next
    TILE: tl.constexpr, COLS: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """A program owns ROWS x COLS elements, TILE together; tiles of the same rows follow each other."""
    tl.static_assert(ROWS * COLS == TILE)
    pid = tl.program_id(axis=0)
    across = tl.cdiv(n_cols, COLS)
    rows = (pid // across).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    cols = (pid % across) * COLS + tl.arange(0, COLS)
    mask = (rows < n_rows)[:, None] & (cols < n_cols)[None, :]

    gate = tl.load(gate_ptr + rows[:, None] * stride_gate + cols[None, :], mask=mask, other=0.0)
    up = tl.load(up_ptr + rows[:, None] * stride_up + cols[None, :], mask=mask, other=0.0)
    gate, up = gate.to(tl.float32), up.to(tl.float32)
    result = up * (gate * tl.sigmoid(gate))
    tl.store(
        out_ptr + rows[:, None] * stride_out + cols[None, :],
        result.to(out_ptr.dtype.element_ty),
        mask=mask,
    )


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """silu(gate) * up for two matrices (n_rows, n_cols) of one dtype, fp32, fp16 or bf16, columns contiguous.

    Rows may be any number of elements apart; the result goes to `out`, like gate, where one is given.
    """
    n_rows, n_cols = gate.shape
    if out is None:
        out = gate.new_empty((n_rows, n_cols))

    def grid(meta):
        cols = tile_cols({"n_cols": n_cols, "TILE": meta["TILE"]})
        rows = meta["TILE"] // cols
        return (triton.cdiv(n_rows, rows) * triton.cdiv(n_cols, cols),)

    swiglu_kernel[grid](
        gate, up, out, n_rows, n_cols, gate.stride(0), up.stride(0), out.stride(0)
    )  # fmt: skip
    return out
