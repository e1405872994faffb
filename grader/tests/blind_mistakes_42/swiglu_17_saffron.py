# gpu-programming/triton-kernels/swiglu.py | error | `result = silu(gate).to(tl.float32) * up.to(tl.float32)` in the kernel calls `tl.exp(-x)` of `silu` on a 16-bit block; tl.exp takes only fp32 and fp64. Should be `silu(gate.to(tl.float32))`. Error in all fp16 and bf16 cases; fp32 is right.
"""SwiGLU by tiles: a program owns a few rows of a strip of columns, so short rows share a program."""

import torch
import triton
import triton.language as tl


def _config(rows, cols, num_warps):
    """One candidate: rows and columns of a tile, powers of two, and warps; 8 or 16 numbers for each thread."""
    return triton.Config({"ROWS": rows, "COLS": cols}, num_warps=num_warps)


CONFIGS = [
    _config(16, 64, 4),
    _config(4, 512, 4),
    _config(1, 1024, 4),
    _config(1, 2048, 4),
    _config(2, 2048, 8),
    _config(1, 4096, 8),
]


def fitting(configs, named_args, **kwargs):
    """The configs whose strips are no wider than a row, the first one for a short row."""
    return [config for config in configs if config.kwargs["COLS"] <= named_args["n_cols"]] or configs[:1]


@triton.jit
def silu(x):
    """x * sigmoid(x): for a large negative x, x / inf, which is 0."""
    return x / (1.0 + tl.exp(-x))


@triton.jit
def tile_offsets(rows, cols, stride):
    """Where the elements of a tile lie in a matrix; rows is int64, for matrices beyond 2^31 elements."""
    return rows[:, None] * stride + cols[None, :]


@triton.autotune(configs=CONFIGS, key=["n_rows", "n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def swiglu_kernel(
    gate_ptr, up_ptr, out_ptr,  # (n_rows, n_cols) of one dtype, columns contiguous
    n_rows, n_cols,
    stride_gate, stride_up, stride_out,  # elements from one row to the next
    ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """out = silu(gate) * up, one tile of ROWS rows and COLS columns for each program."""
    pid = tl.program_id(axis=0)
    strips = tl.cdiv(n_cols, COLS)
    rows = (pid // strips).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    cols = pid % strips * COLS + tl.arange(0, COLS)
    inside = (rows < n_rows)[:, None] & (cols < n_cols)[None, :]
    gate = tl.load(gate_ptr + tile_offsets(rows, cols, stride_gate), mask=inside, other=0.0)
    up = tl.load(up_ptr + tile_offsets(rows, cols, stride_up), mask=inside, other=0.0)
    result = silu(gate).to(tl.float32) * up.to(tl.float32)
    result = result.to(out_ptr.dtype.element_ty)
    tl.store(out_ptr + tile_offsets(rows, cols, stride_out), result, mask=inside)


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """silu(gate) * up for two matrices (n_rows, n_cols) of one dtype, fp32, fp16 or bf16, columns contiguous.

    Rows may be any number of elements apart; the result goes to `out`, like gate, where one is given.
    """
    n_rows, n_cols = gate.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), device=gate.device, dtype=gate.dtype)
    grid = lambda meta: (triton.cdiv(n_rows, meta["ROWS"]) * triton.cdiv(n_cols, meta["COLS"]),)  # noqa: E731
    swiglu_kernel[grid](
        gate, up, out, n_rows, n_cols, gate.stride(0), up.stride(0), out.stride(0)
    )  # fmt: skip
    return out
