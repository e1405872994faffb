# gpu-programming/triton-kernels/swiglu.py | right | Unusual: persistent programs that walk over two-dimensional tiles (ROWS x COLS), row numbers in int64 as a column, and a sigmoid by `exp2` of -|x| with a `tl.where` for the sign, which never overflows.
"""SwiGLU on two-dimensional tiles: a fixed number of programs walks over all of them, autotuned."""

import torch
import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)
PROGRAMS = 132 * 16  # sixteen for each multiprocessor of an H200


def _config(rows, cols, num_warps):
    """One candidate: the shape of a tile, powers of two, with 8 or 16 numbers for each thread."""
    return triton.Config({"ROWS": rows, "COLS": cols}, num_warps=num_warps, num_stages=1)


CONFIGS = [
    _config(8, 256, 4),
    _config(4, 512, 8),
    _config(2, 1024, 4),
    _config(2, 1024, 8),
    _config(1, 2048, 4),
    _config(1, 4096, 8),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: tiles no wider than the row, the narrowest for a short row."""
    return [config for config in configs if config.kwargs["COLS"] <= named_args["n_cols"]] or configs[:1]


@triton.jit
def sigmoid(x):
    """1 / (1 + exp(-x)) from exp(-|x|), which never overflows."""
    small = tl.exp2(tl.abs(x) * -LOG2_E)
    return tl.where(x < 0.0, small, 1.0) / (1.0 + small)


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def swiglu_kernel(
    gate_ptr, up_ptr, out_ptr,  # (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous
    n_rows, n_cols,
    stride_gate, stride_up, stride_out,  # elements from one row to the next
    ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """Of p programs number i has the tiles i, i + p, i + 2 p and so on, counted along the rows."""
    across = tl.cdiv(n_cols, COLS)
    tiles = tl.cdiv(n_rows, ROWS) * across
    for tile in tl.range(tl.program_id(axis=0), tiles, tl.num_programs(axis=0)):
        rows = (tile // across) * ROWS + tl.arange(0, ROWS)[:, None].to(tl.int64)
        cols = (tile % across) * COLS + tl.arange(0, COLS)[None, :]
        inside = (rows < n_rows) & (cols < n_cols)
        gate = tl.load(gate_ptr + (rows * stride_gate + cols), mask=inside, other=0.0).to(tl.float32)
        up = tl.load(up_ptr + (rows * stride_up + cols), mask=inside, other=0.0).to(tl.float32)
        result = gate * sigmoid(gate) * up
        tl.store(out_ptr + (rows * stride_out + cols), result.to(out_ptr.dtype.element_ty), mask=inside)


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """silu(gate) * up for two matrices (n_rows, n_cols) of one dtype, fp32, fp16 or bf16, columns contiguous.

    Rows may be any number of elements apart; the result goes to `out`, like gate, where one is given.
    """
    n_rows, n_cols = gate.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=gate.dtype, device=gate.device)

    def programs(meta):
        return (min(triton.cdiv(n_rows, meta["ROWS"]) * triton.cdiv(n_cols, meta["COLS"]), PROGRAMS),)

    swiglu_kernel[programs](
        gate, up, out, n_rows, n_cols, gate.stride(0), up.stride(0), out.stride(0)
    )  # fmt: skip
    return out
