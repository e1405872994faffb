"""EXPECT WRONG/NONFINITE from attention, hint 6: the diagonal is masked as well"""

import torch
import triton
import triton.language as tl


@triton.jit
def attention_kernel(q_ptr, k_ptr, v_ptr, out_ptr, heads, length, scale, stride_qb, stride_qh, stride_qm,
                     stride_kb, stride_kh, stride_kn, stride_vb, stride_vh, stride_vn, stride_ob, stride_oh,
                     stride_om, DIM: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    batch = (tl.program_id(axis=1) // heads).to(tl.int64)
    head = (tl.program_id(axis=1) % heads).to(tl.int64)
    offs_m, cols = tl.program_id(axis=0) * BLOCK + tl.arange(0, BLOCK), tl.arange(0, DIM)[None, :]
    rows, inside = offs_m.to(tl.int64)[:, None], offs_m[:, None] < length
    q = tl.load(
        q_ptr + batch * stride_qb + head * stride_qh + rows * stride_qm + cols, mask=inside, other=0.0
    )
    m = tl.full((BLOCK,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((BLOCK,), dtype=tl.float32)
    acc = tl.zeros((BLOCK, DIM), dtype=tl.float32)
    for start in range(0, min((tl.program_id(axis=0) + 1) * BLOCK, length), BLOCK):
        keys = start + tl.arange(0, BLOCK)
        at, there = keys.to(tl.int64)[:, None], keys[:, None] < length
        k = tl.load(
            k_ptr + batch * stride_kb + head * stride_kh + at * stride_kn + cols, mask=there, other=0.0
        )
        v = tl.load(
            v_ptr + batch * stride_vb + head * stride_vh + at * stride_vn + cols, mask=there, other=0.0
        )
        scores = tl.dot(q, k.T, input_precision="ieee") * scale
        scores = tl.where(offs_m[:, None] > keys[None, :], scores, -float("inf"))
        m_new = tl.maximum(m, tl.max(scores, axis=1))
        p = tl.exp(scores - m_new[:, None])
        factor = tl.exp(m - m_new)
        acc = tl.dot(p.to(v.dtype), v, acc * factor[:, None], input_precision="ieee")
        d = d * factor + tl.sum(p, axis=1)
        m = m_new
    out_ptrs = out_ptr + batch * stride_ob + head * stride_oh + rows * stride_om + cols
    tl.store(out_ptrs, (acc / d[:, None]).to(out_ptr.dtype.element_ty), mask=inside)


def attention(q, k, v, *, out=None):
    out = torch.empty_like(q) if out is None else out
    batch, heads, length, dim = q.shape
    strides = *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *out.stride()[:3]
    grid = (triton.cdiv(length, 32), batch * heads)
    attention_kernel[grid](q, k, v, out, heads, length, dim**-0.5, *strides, DIM=dim, BLOCK=32)
    return out
