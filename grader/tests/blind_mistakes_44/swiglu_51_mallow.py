# gpu-programming/triton-kernels/swiglu.py | corner | `tl.where(x >= 0.0, above, 1.0 - above)` in `logistic` should have `small * above` for negative x: 1 - above cancels. Shows in fp32 in all but the smallest shapes (gates below about -2 lose digits, below -17 the sigmoid is exactly 0), and in 16 bits with strongly negative gates only (the "huge" values); fp16 and bf16 with ordinary values are right.
"""SwiGLU over two-dimensional tiles: a few rows and many columns for each program."""

import torch
import triton
import triton.language as tl


def _tile(rows, cols, warps):
    return triton.Config({"ROWS": rows, "COLS": cols}, num_warps=warps)


# From 8 to 32 elements of each tensor for a thread. The last one is for short rows.
CONFIGS = [
    _tile(1, 4096, 8),
    _tile(1, 2048, 4),
    _tile(2, 2048, 8),
    _tile(4, 1024, 8),
    _tile(2, 1024, 4),
    _tile(16, 64, 4),
]


def fitting(configs, named_args, **kwargs):
    """Tiles no wider than a row, or else the narrow one."""
    return [c for c in configs if c.kwargs["COLS"] <= named_args["n_cols"]] or configs[-1:]


@triton.jit
def logistic(x):
    """1 / (1 + exp(-x)), from a power that is at most 1: it overflows on neither side."""
    small = tl.exp(-tl.abs(x))
    above = 1.0 / (1.0 + small)
    return tl.where(x >= 0.0, above, 1.0 - above)


@triton.autotune(
    configs=CONFIGS, key=["n_rows", "n_cols"], prune_configs_by={"early_config_prune": fitting}
)
@triton.jit
def swiglu_kernel(
    gate_ptr, up_ptr, out_ptr, n_rows, n_cols,
    stride_gate, stride_up, stride_out,
    ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """One ROWS x COLS tile; neighbouring programs have neighbouring columns."""
    pid = tl.program_id(axis=0)
    across = tl.cdiv(n_cols, COLS)
    rows = pid // across * ROWS + tl.arange(0, ROWS)[:, None]
    cols = pid % across * COLS + tl.arange(0, COLS)[None, :]
    inside = (rows < n_rows) & (cols < n_cols)
    rows = rows.to(tl.int64)
    gate = tl.load(gate_ptr + rows * stride_gate + cols, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(up_ptr + rows * stride_up + cols, mask=inside, other=0.0).to(tl.float32)
    product = gate * logistic(gate) * up
    tl.store(out_ptr + rows * stride_out + cols, product.to(out_ptr.dtype.element_ty), mask=inside)


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """gate * logistic(gate) * up for matrices (n_rows, n_cols) of one dtype, columns contiguous.

    The result goes to `out` where one is given, whatever its row stride, else to a new contiguous matrix.
    """
    if out is None:
        out = torch.empty_like(gate, memory_format=torch.contiguous_format)
    n_rows, n_cols = gate.shape
    strides = [tensor.stride(0) for tensor in (gate, up, out)]
    swiglu_kernel[
        lambda meta: (triton.cdiv(n_rows, meta["ROWS"]) * triton.cdiv(n_cols, meta["COLS"]),)
    ](gate, up, out, n_rows, n_cols, *strides)
    return out
