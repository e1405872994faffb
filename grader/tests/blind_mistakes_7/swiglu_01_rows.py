# gpu-programming/triton-kernels/swiglu.py | contract | Where no out is given, torch.empty((n_rows, n_cols), device=gate.device) has the default dtype fp32; it must have dtype=gate.dtype. fp16 and bf16 inputs get a result of fp32; with out given all is right.
"""SwiGLU on 2-D tiles: some rows and some columns at once."""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"ROWS": rows, "COLS": cols}, num_warps=warps)
    for rows, cols, warps in ((1, 2048, 8), (2, 1024, 4), (4, 256, 4))
]


@triton.jit
def sigmoid_of(z):
    """Of the smaller side only: exp never overflows."""
    e = tl.exp(-tl.abs(z))
    return tl.where(z >= 0, 1.0 / (1.0 + e), e / (1.0 + e))


@triton.autotune(configs=CONFIGS, key=["n_rows", "n_cols"])
@triton.jit
def swiglu_tiles(g_ptr, u_ptr, o_ptr, n_rows, n_cols, g_row, u_row, o_row, ROWS: tl.constexpr, COLS: tl.constexpr):
    """out = g * sigmoid(g) * u; a program owns ROWS x COLS elements, tiles are counted row by row."""
    across = tl.cdiv(n_cols, COLS)
    r = (tl.program_id(0) // across).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    c = tl.program_id(0) % across * COLS + tl.arange(0, COLS)[None, :]
    live = (r < n_rows) & (c < n_cols)
    g = tl.load(g_ptr + r * g_row + c, mask=live, other=0.0).to(tl.float32)
    u = tl.load(u_ptr + r * u_row + c, mask=live, other=0.0).to(tl.float32)
    tl.store(o_ptr + r * o_row + c, (g * sigmoid_of(g) * u).to(o_ptr.dtype.element_ty), mask=live)


def swiglu(gate, up, *, out=None):
    """silu(gate) * up"""
    n_rows, n_cols = gate.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), device=gate.device)
    grid = lambda meta: (triton.cdiv(n_rows, meta["ROWS"]) * triton.cdiv(n_cols, meta["COLS"]),)
    swiglu_tiles[grid](gate, up, out, n_rows, n_cols, gate.stride(0), up.stride(0), out.stride(0))
    return out
