# gpu-programming/triton-kernels/swiglu.py | right | right
"""SwiGLU on two-dimensional tiles, so that short rows share a program."""

import typing

import torch
import triton
import triton.language as tl


class Tile(typing.NamedTuple):
    """Rows and columns of a tile, and the warps that work on it."""

    ROWS: int = 1
    COLS: int = 2048
    WARPS: int = 4


TILES = [Tile(1, 4096, 8), Tile(), Tile(2, 1024), Tile(4, 512), Tile(16, 64)]
CONFIGS = [triton.Config({"ROWS": t.ROWS, "COLS": t.COLS}, num_warps=t.WARPS) for t in TILES]


def fitting(configs, named_args, **kwargs):
    """Of the tiles no wider than a row the two widest, and the narrowest where there is none."""
    return [config for config in configs if config.kwargs["COLS"] <= named_args["n_cols"]][:2] or configs[-1:]


@triton.jit
def tile_of(base, rows, cols, stride):
    """The pointers of a tile: (ROWS, COLS), rows as int64."""
    return base + rows[:, None] * stride + cols[None, :]


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def swiglu_kernel(
    gate_ptr, up_ptr, out_ptr,
    n_rows, n_cols,
    stride_gate, stride_up, stride_out,
    ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(axis=0)
    across = tl.cdiv(n_cols, COLS)
    rows = (pid // across).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    cols = (pid % across).to(tl.int64) * COLS + tl.arange(0, COLS)
    inside = (rows < n_rows)[:, None] & (cols < n_cols)[None, :]

    gate = tl.load(tile_of(gate_ptr, rows, cols, stride_gate), mask=inside, other=0.0).to(tl.float32)
    up = tl.load(tile_of(up_ptr, rows, cols, stride_up), mask=inside, other=0.0).to(tl.float32)
    result = gate * tl.sigmoid(gate) * up
    tl.store(tile_of(out_ptr, rows, cols, stride_out), result.to(out_ptr.dtype.element_ty), mask=inside)


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """silu(gate) * up for matrices of one dtype, columns contiguous, any row strides."""
    n_rows, n_cols = gate.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=gate.dtype, device=gate.device)
    swiglu_kernel[lambda meta: (triton.cdiv(n_rows, meta["ROWS"]) * triton.cdiv(n_cols, meta["COLS"]),)](
        gate, up, out,
        n_rows, n_cols,
        gate.stride(0), up.stride(0), out.stride(0),
    )  # fmt: skip
    return out
