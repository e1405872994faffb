# gpu-programming/triton-kernels/swiglu.py | right | right
"""SwiGLU, silu(gate) * up, on tiles of several rows and columns; short rows share a program."""

import torch
import triton
import triton.language as tl


def _tile(rows, cols, warps):
    return triton.Config({"ROWS": rows, "COLS": cols}, num_warps=warps)


# From 8 numbers for each thread, which are 16 bytes in 16 bits, to 16.
CONFIGS = [
    _tile(8, 128, 4),
    _tile(4, 512, 4),
    _tile(2, 1024, 8),
    _tile(1, 2048, 4),
    _tile(1, 2048, 8),
    _tile(1, 4096, 8),
]


def fitting(configs, named_args, **kwargs):
    """Tiles no wider than a row; a narrow matrix takes the first."""
    return [config for config in configs if config.kwargs["COLS"] <= named_args["n_cols"]] or configs[:1]


@triton.jit
def silu(x):
    """x / (1 + exp(-x)) by an exponential that is never above 1: neither sign overflows."""
    small = tl.exp(-tl.abs(x))
    return x * tl.where(x < 0.0, small, 1.0) / (1.0 + small)


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def swiglu_kernel(
    gate_ptr,
    up_ptr,
    out_ptr,
    n_rows,
    n_cols,
    gate_step,
    up_step,
    out_step,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
):
    """A program owns a tile of ROWS x COLS; tiles are counted row by row. A step leads to the next row."""
    pid = tl.program_id(axis=0)
    across = tl.cdiv(n_cols, COLS)
    down = (pid // across).to(tl.int64)
    rows = (down * ROWS + tl.arange(0, ROWS))[:, None]
    cols = (pid % across * COLS + tl.arange(0, COLS))[None, :]
    inside = (rows < n_rows) & (cols < n_cols)
    gate = tl.load(gate_ptr + rows * gate_step + cols, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(up_ptr + rows * up_step + cols, mask=inside, other=0.0).to(tl.float32)
    product = silu(gate) * up
    tl.store(out_ptr + rows * out_step + cols, product.to(out_ptr.dtype.element_ty), mask=inside)


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """silu(gate) * up for two (n_rows, n_cols) matrices of one dtype, columns contiguous, any row stride."""
    n_rows, n_cols = gate.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=gate.dtype, device=gate.device)

    grid = lambda tile: (triton.cdiv(n_rows, tile["ROWS"]) * triton.cdiv(n_cols, tile["COLS"]),)  # noqa: E731
    swiglu_kernel[grid](gate, up, out, n_rows, n_cols, gate.stride(0), up.stride(0), out.stride(0))
    return out
