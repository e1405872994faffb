# gpu-programming/triton-kernels/swiglu.py | two mistakes | (1) In `silu`, `x = tl.clamp(x, -60.0, 60.0)` clamps the factor as well, and not only the argument of exp: gates above 60 give 60 * up in place of gate * up (and below -60 a result that is not near enough to 0 in fp32 and bf16); shows with huge gates only. (2) In `swiglu_kernel`, `rows = ((pid // across) * ROWS + tl.arange(0, ROWS))[:, None]` stays int32, and `rows * stride` in `load_tile` and in `out_ptrs` wraps beyond 2^31 elements; it should be `.to(tl.int64)`. Shows if rows of gate, up or out lie far apart.
"""SwiGLU in tiles of two dimensions: narrow matrices take several rows in a tile, wide ones a long piece of a row."""

import torch
import triton
import triton.language as tl

# Rows, columns and warps: 8 to 16 numbers for each thread, 8 of them beside each other.
CONFIGS = [
    triton.Config({"ROWS": rows, "COLS": cols}, num_warps=warps)
    for rows, cols, warps in ((16, 64, 4), (4, 256, 4), (2, 1024, 8), (1, 2048, 8), (1, 2048, 4), (1, 4096, 8))
]


def fitting(configs, named_args, **kwargs):
    """Tiles no wider than the row, the first one for a short row."""
    return [config for config in configs if config.kwargs["COLS"] <= named_args["n_cols"]] or configs[:1]


@triton.jit
def silu(x):
    """x / (1 + exp(-x)), within the range where exp of both signs is an ordinary fp32 number."""
    x = tl.clamp(x, -60.0, 60.0)
    return x / (1.0 + tl.exp(-x))


@triton.jit
def load_tile(ptr, rows, cols, stride, mask):
    return tl.load(ptr + rows * stride + cols, mask=mask, other=0.0).to(tl.float32)


@triton.autotune(configs=CONFIGS, key=["n_rows", "n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def swiglu_kernel(
    gate_ptr, up_ptr, out_ptr, n_rows, n_cols,
    stride_gate, stride_up, stride_out,
    ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """A program owns ROWS rows of COLS columns; the tiles of one band of rows follow each other."""
    across = tl.cdiv(n_cols, COLS)
    pid = tl.program_id(axis=0)
    rows = ((pid // across) * ROWS + tl.arange(0, ROWS))[:, None]
    cols = ((pid % across) * COLS + tl.arange(0, COLS))[None, :]
    mask = (rows < n_rows) & (cols < n_cols)
    gate = load_tile(gate_ptr, rows, cols, stride_gate, mask)
    up = load_tile(up_ptr, rows, cols, stride_up, mask)
    out_ptrs = out_ptr + rows * stride_out + cols
    tl.store(out_ptrs, (silu(gate) * up).to(out_ptr.dtype.element_ty), mask=mask)


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """silu(gate) * up for two matrices (n_rows, n_cols) of one dtype, fp32, fp16 or bf16, columns contiguous."""
    n_rows, n_cols = gate.shape
    if out is None:
        out = gate.new_empty((n_rows, n_cols))

    def tiles(meta):
        return (triton.cdiv(n_rows, meta["ROWS"]) * triton.cdiv(n_cols, meta["COLS"]),)

    swiglu_kernel[tiles](
        gate, up, out, n_rows, n_cols, gate.stride(0), up.stride(0), out.stride(0),
    )  # fmt: skip
    return out
