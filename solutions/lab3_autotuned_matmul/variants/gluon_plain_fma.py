"""EXPECT PASS from matmul on a GPU: Gluon with blocked layouts, fp32 multiply-adds, no tensor cores."""

import torch
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

BLOCK, STEP, WARPS = 32, 32, 4
TILE = gl.BlockedLayout(size_per_thread=[2, 4], threads_per_warp=[4, 8], warps_per_cta=[4, 1], order=[1, 0])


@gluon.jit
def tile_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, am, ak, bk, bn, cm, cn,
    BLOCK: gl.constexpr, STEP: gl.constexpr, TILE: gl.constexpr,
):  # fmt: skip
    """The operands move from the layout of their loads to the one that the products want."""
    by_row: gl.constexpr = gl.SliceLayout(1, TILE)
    by_col: gl.constexpr = gl.SliceLayout(0, TILE)
    a_operand: gl.constexpr = gl.DotOperandLayout(operand_index=0, parent=TILE, k_width=0)
    b_operand: gl.constexpr = gl.DotOperandLayout(operand_index=1, parent=TILE, k_width=0)

    m = gl.program_id(0).to(gl.int64) * BLOCK + gl.arange(0, BLOCK, layout=by_row)
    n = gl.program_id(1).to(gl.int64) * BLOCK + gl.arange(0, BLOCK, layout=by_col)
    acc = gl.zeros([BLOCK, BLOCK], gl.float32, layout=TILE)
    for k in range(0, K, STEP):
        along = k + gl.arange(0, STEP, layout=by_col)
        down = k + gl.arange(0, STEP, layout=by_row)
        a_mask = (m[:, None] < M) & (along[None, :] < K)
        b_mask = (down[:, None] < K) & (n[None, :] < N)
        a = gl.load(a_ptr + m[:, None] * am + along[None, :] * ak, mask=a_mask, other=0.0)
        b = gl.load(b_ptr + down[:, None] * bk + n[None, :] * bn, mask=b_mask, other=0.0)
        a = gl.convert_layout(a.to(gl.float32), a_operand)
        b = gl.convert_layout(b.to(gl.float32), b_operand)
        acc = gl.dot_fma(a, b, acc)
    c_mask = (m[:, None] < M) & (n[None, :] < N)
    gl.store(c_ptr + m[:, None] * cm + n[None, :] * cn, acc.to(c_ptr.dtype.element_ty), mask=c_mask)


def matmul(a, b, *, out=None):
    M, K = a.shape
    N = b.shape[1]
    if out is None:
        out = torch.empty((M, N), dtype=a.dtype, device=a.device)
    grid = (triton.cdiv(M, BLOCK), triton.cdiv(N, BLOCK))
    tile_kernel[grid](
        a, b, out, M, N, K, *a.stride(), *b.stride(), *out.stride(), BLOCK, STEP, TILE, num_warps=WARPS
    )
    return out
