# gpu-programming/triton-kernels/attention.py | corner | The launch passes the strides of k (kb, kh, kn) a second time where those of v (vb, vh, vn) belong. Only calls whose v has other strides than k (padded, or heads side by side) show it.
"""Causal attention, one loop over the keys with the same mask in each step, from the diagonal back to key 0."""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"QS": 64, "KS": 64}, num_stages=3, num_warps=4),
    triton.Config({"QS": 64, "KS": 32}, num_stages=2, num_warps=4),
    triton.Config({"QS": 32, "KS": 32}, num_stages=2, num_warps=4),
]


def pick(configs, named_args, **kwargs):
    return configs[-1:] if named_args["q_ptr"].dtype == torch.float32 else configs


@triton.jit
def head_of(ptr, b, h, stride_b, stride_h):
    return ptr + b.to(tl.int64) * stride_b + h.to(tl.int64) * stride_h


@triton.autotune(configs=CONFIGS, key=["n", "D"], prune_configs_by={"early_config_prune": pick})
@triton.jit
def causal_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, n,
    qb, qh, qm, kb, kh, kn, vb, vh, vn, ob, oh, om,
    inv_sqrt_dim, H, D: tl.constexpr, QS: tl.constexpr, KS: tl.constexpr,
):  # fmt: skip
    tiles = tl.cdiv(n, QS)
    tile = tl.program_id(0) % tiles
    b, h = tl.program_id(0) // tiles // H, tl.program_id(0) // tiles % H
    c = tl.arange(0, D)[None, :]
    i = tile * QS + tl.arange(0, QS)
    i64 = i.to(tl.int64)[:, None]
    there = i[:, None] < n
    q = tl.load(head_of(q_ptr, b, h, qb, qh) + i64 * qm + c, mask=there, other=0.0)
    ks = head_of(k_ptr, b, h, kb, kh)
    vs = head_of(v_ptr, b, h, vb, vh)
    # The lowest finite number: a row whose keys are all hidden so far has p = 0, as the scores are -inf.
    peak = tl.full((QS,), -3.0e38, dtype=tl.float32)
    weight = tl.zeros((QS,), dtype=tl.float32)
    value = tl.zeros((QS, D), dtype=tl.float32)
    last = tl.minimum(tile * QS + QS, n)
    for step in range(0, tl.cdiv(last, KS)):
        j = (tl.cdiv(last, KS) - 1 - step) * KS + tl.arange(0, KS)
        j64 = j.to(tl.int64)[:, None]
        k = tl.load(ks + j64 * kn + c, mask=j[:, None] < n, other=0.0)
        v = tl.load(vs + j64 * vn + c, mask=j[:, None] < n, other=0.0)
        s = tl.dot(q, tl.trans(k), input_precision="ieee") * inv_sqrt_dim
        s = tl.where((j[None, :] <= i[:, None]) & (j[None, :] < n), s, float("-inf"))
        higher = tl.maximum(peak, tl.max(s, 1))
        shrink = tl.exp(peak - higher)
        p = tl.exp(s - higher[:, None])
        weight = weight * shrink + tl.sum(p, 1)
        value = value * shrink[:, None]
        value = tl.dot(p.to(v.dtype), v, value, input_precision="ieee")
        peak = higher
    value = value / weight[:, None]
    tl.store(head_of(o_ptr, b, h, ob, oh) + i64 * om + c, value.to(o_ptr.dtype.element_ty), mask=there)


def attention(q, k, v, *, out=None):
    """Causal softmax(q k^T / sqrt(dim)) v."""
    B, H, n, D = q.shape
    if out is None:
        out = torch.empty((B, H, n, D), device=q.device, dtype=q.dtype)
    qb, qh, qm, _ = q.stride()
    kb, kh, kn, _ = k.stride()
    ob, oh, om, _ = out.stride()
    grid = lambda meta: (triton.cdiv(n, meta["QS"]) * B * H,)
    causal_kernel[grid](
        q, k, v, out, n, qb, qh, qm, kb, kh, kn, kb, kh, kn, ob, oh, om, D**-0.5, H, D=D
    )
    return out
