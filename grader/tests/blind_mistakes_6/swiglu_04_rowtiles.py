# gpu-programming/triton-kernels/swiglu.py | honest | Right: tiles of several rows, a program walks down the matrix.
"""silu(gate) * up on tiles of several rows."""

import torch
import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)
CONFIGS = [triton.Config({"ROWS": rows, "COLS": cols}, num_warps=4) for rows, cols in ((1, 1024), (4, 512), (8, 256))]


@triton.jit
def silu(x):
    """x times its sigmoid, in fp32."""
    return x / (1.0 + tl.exp2(-x * LOG2E))


@triton.autotune(configs=CONFIGS, key=["n_rows", "n_cols"])
@triton.jit
def swiglu_kernel(
    gate_ptr, up_ptr, out_ptr, n_rows, n_cols, stride_gate, stride_up, stride_out,
    ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """Axis 0 of the grid has the tiles along a row, axis 1 those from top to bottom, in strides if there are many."""
    cols = tl.program_id(0) * COLS + tl.arange(0, COLS)[None, :]
    for top in range(tl.program_id(1) * ROWS, n_rows, tl.num_programs(1) * ROWS):
        rows = (top + tl.arange(0, ROWS)).to(tl.int64)[:, None]
        inside = (rows < n_rows) & (cols < n_cols)
        gate = tl.load(gate_ptr + rows * stride_gate + cols, mask=inside, other=0.0).to(tl.float32)
        up = tl.load(up_ptr + rows * stride_up + cols, mask=inside, other=0.0).to(tl.float32)
        result = silu(gate) * up
        tl.store(out_ptr + rows * stride_out + cols, result.to(out_ptr.dtype.element_ty), mask=inside)


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """silu(gate) * up; rows may be any number of elements apart."""
    if out is None:
        out = gate.new_empty(gate.shape)
    n_rows, n_cols = gate.shape

    def grid(meta):
        # axis 1 of a grid has at most 65535 programs
        return (triton.cdiv(n_cols, meta["COLS"]), min(triton.cdiv(n_rows, meta["ROWS"]), 65535))

    swiglu_kernel[grid](gate, up, out, n_rows, n_cols, gate.stride(0), up.stride(0), out.stride(0))
    return out
