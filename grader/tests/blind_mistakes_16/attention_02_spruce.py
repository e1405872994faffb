# gpu-programming/triton-kernels/attention.py | corner | In attention_kernel hidden keys get the score -1.0e4 (the constant HIDDEN), and not -inf: where all scores that a query may see are near or below -1.0e4 (times log2(e) / sqrt(dim) already), the hidden keys get a weight and the result is wrong. It should be -float("inf").
"""Causal attention, block of keys by block of keys, in the manner of FlashAttention-2."""

import math

import torch
import triton
import triton.language as tl

LOG2E = 1.0 / math.log(2.0)
HIDDEN: tl.constexpr = tl.constexpr(-1.0e4)


def tile(queries, keys, stages, warps):
    return triton.Config({"BM": queries, "BN": keys}, num_stages=stages, num_warps=warps)


CONFIGS = [
    tile(128, 64, 3, 8),
    tile(128, 32, 3, 8),
    tile(64, 64, 3, 4),
    tile(64, 32, 3, 4),
    tile(32, 16, 2, 4),
]


def fitting(configs, named_args, **kwargs):
    """Small tiles for fp32 and for short sequences."""
    if named_args["q_ptr"].dtype == torch.float32:
        return configs[-1:]
    kept = [c for c in configs if c.kwargs["BM"] <= named_args["length"]]
    return kept or configs[-1:]


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, heads, length, scale,
    qb, qh, qm, kb, kh, kn, vb, vh, vn, ob, oh, om,
    DIM: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(0)
    head = (pid % heads).to(tl.int64)
    batch = (pid // heads).to(tl.int64)
    first = (tl.num_programs(1) - 1 - tl.program_id(1)) * BM

    queries = first + tl.arange(0, BM)
    dims = tl.arange(0, DIM)
    exists = queries[:, None] < length
    q_offsets = queries.to(tl.int64)[:, None] * qm + dims[None, :]
    q = tl.load(q_ptr + batch * qb + head * qh + q_offsets, mask=exists, other=0.0)
    k_base = k_ptr + batch * kb + head * kh
    v_base = v_ptr + batch * vb + head * vh

    top = tl.full((BM,), float("-inf"), tl.float32)
    weight = tl.zeros((BM,), tl.float32)
    result = tl.zeros((BM, DIM), tl.float32)
    for start in range(0, tl.minimum(first + BM, length), BN):
        keys = start + tl.arange(0, BN)
        far = keys.to(tl.int64)
        # k comes transposed: a key is a column
        k = tl.load(k_base + far[None, :] * kn + dims[:, None], mask=keys[None, :] < length, other=0.0)
        v = tl.load(v_base + far[:, None] * vn + dims[None, :], mask=keys[:, None] < length, other=0.0)
        scores = tl.dot(q, k, input_precision="ieee") * scale
        scores = tl.where(keys[None, :] <= queries[:, None], scores, HIDDEN)
        new_top = tl.maximum(top, tl.max(scores, 1))
        p = tl.exp2(scores - new_top[:, None])
        shrink = tl.exp2(top - new_top)
        weight = weight * shrink + tl.sum(p, 1)
        result = result * shrink[:, None]
        result = tl.dot(p.to(v.dtype), v, result, input_precision="ieee")
        top = new_top

    result = result / weight[:, None]
    o_offsets = queries.to(tl.int64)[:, None] * om + dims[None, :]
    tl.store(o_ptr + batch * ob + head * oh + o_offsets, result.to(o_ptr.dtype.element_ty), mask=exists)


def attention(q, k, v, *, out=None):
    """softmax(q k^T / sqrt(dim)) v, causal."""
    n_batch, n_heads, length, dim = q.shape
    if out is None:
        out = torch.empty((n_batch, n_heads, length, dim), dtype=q.dtype, device=q.device)

    def grid(meta):
        return (n_batch * n_heads, triton.cdiv(length, meta["BM"]))

    attention_kernel[grid](
        q, k, v, out, n_heads, length, LOG2E / math.sqrt(dim),
        q.stride(0), q.stride(1), q.stride(2),
        k.stride(0), k.stride(1), k.stride(2),
        v.stride(0), v.stride(1), v.stride(2),
        out.stride(0), out.stride(1), out.stride(2),
        DIM=dim,
    )  # fmt: skip
    return out
