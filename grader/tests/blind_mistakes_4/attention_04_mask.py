# gpu-programming/triton-kernels/attention.py | wrong everywhere | attn_fwd, the mask of the transposed scores: a query sees the keys at or after its own position instead of those up to it (and keys past the end); it must be keys <= queries
"""Causal attention with the scores transposed: keys along the rows, queries along the columns."""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"BQ": 128, "BK": 64}, num_stages=3, num_warps=8),
    triton.Config({"BQ": 64, "BK": 64}, num_stages=3, num_warps=4),
    triton.Config({"BQ": 32, "BK": 32}, num_stages=2, num_warps=4),
]


def prune(configs, named_args, **kwargs):
    if named_args["q_ptr"].dtype == torch.float32:
        return configs[-1:]
    return [c for c in configs if c.kwargs["BQ"] <= named_args["n_ctx"]] or configs[-1:]


@triton.autotune(configs=CONFIGS, key=["n_ctx", "D"], prune_configs_by={"early_config_prune": prune})
@triton.jit
def attn_fwd(q_ptr, k_ptr, v_ptr, o_ptr, n_heads, n_ctx, sm_scale,
             qb, qh, qm, kb, kh, kn, vb, vh, vn, ob, oh, om,
             D: tl.constexpr, BQ: tl.constexpr, BK: tl.constexpr):
    bh = tl.program_id(0)
    b = (bh // n_heads).to(tl.int64)
    h = (bh % n_heads).to(tl.int64)
    lo = (tl.num_programs(1) - 1 - tl.program_id(1)) * BQ
    q_ptr += b * qb + h * qh
    k_ptr += b * kb + h * kh
    v_ptr += b * vb + h * vh
    o_ptr += b * ob + h * oh
    queries = lo + tl.arange(0, BQ)
    dims = tl.arange(0, D)
    # q as (D, BQ), so that k @ q has the keys along its rows
    qt = tl.load(q_ptr + queries[None, :].to(tl.int64) * qm + dims[:, None], mask=queries[None, :] < n_ctx, other=0.0)
    m = tl.full((BQ,), -float("inf"), tl.float32)
    l = tl.zeros((BQ,), tl.float32)
    acc = tl.zeros((D, BQ), tl.float32)
    hi = tl.minimum(lo + BQ, n_ctx)
    for j in range(0, hi, BK):
        keys = j + tl.arange(0, BK)
        k = tl.load(k_ptr + keys[:, None].to(tl.int64) * kn + dims[None, :], mask=keys[:, None] < n_ctx, other=0.0)
        st = tl.dot(k, qt, input_precision="ieee") * sm_scale
        if j + BK > lo:
            st = tl.where(keys[:, None] >= queries[None, :], st, -float("inf"))
        m_new = tl.maximum(m, tl.max(st, axis=0))
        corr = tl.exp2(m - m_new)
        pt = tl.exp2(st - m_new[None, :])
        l = l * corr + tl.sum(pt, axis=0)
        vt = tl.load(v_ptr + keys[None, :].to(tl.int64) * vn + dims[:, None], mask=keys[None, :] < n_ctx, other=0.0)
        acc = tl.dot(vt, pt.to(vt.dtype), acc * corr[None, :], input_precision="ieee")
        m = m_new
    acc = acc / l[None, :]
    tl.store(o_ptr + queries[None, :].to(tl.int64) * om + dims[:, None], acc.to(o_ptr.dtype.element_ty),
             mask=queries[None, :] < n_ctx)


def attention(q, k, v, *, out=None):
    B, H, L, D = q.shape
    if out is None:
        out = torch.empty((B, H, L, D), dtype=q.dtype, device=q.device)
    sm_scale = D**-0.5 * 1.4426950408889634
    grid = lambda meta: (B * H, triton.cdiv(L, meta["BQ"]))
    attn_fwd[grid](q, k, v, out, H, L, sm_scale, *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *out.stride()[:3], D=D)
    return out
