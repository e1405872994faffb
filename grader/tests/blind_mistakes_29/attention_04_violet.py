# gpu-programming/triton-kernels/attention.py | right | right
"""Causal attention from the diagonal to the left: the block on the diagonal first, then each one before it.

Tiles are square. So the diagonal is one block, in which each query has at least its own key: it gives m, d and acc
their first values, and no -inf is left when the loop begins.
"""

import math

import torch
import triton
import triton.language as tl


def _config(block, num_stages, num_warps):
    return triton.Config({"BLOCK": block}, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [_config(128, 2, 8), _config(64, 3, 4), _config(64, 2, 4), _config(32, 2, 4)]


def fitting(configs, named_args, **kwargs):
    """Tiles no longer than the sequence, the last one alone for fp32 and for short sequences."""
    longest = 0 if named_args["q_ptr"].dtype == torch.float32 else named_args["length"]
    return [config for config in configs if config.kwargs["BLOCK"] <= longest] or configs[-1:]


@triton.jit
def fold(acc, m, d, q, k, v, scale):
    """acc, m and d with a block of keys that all queries see."""
    scores = tl.dot(q, tl.trans(k), input_precision="ieee")
    m_new = tl.maximum(m, scale * tl.max(scores, axis=1))
    p = tl.exp2(scale * scores - m_new[:, None])
    shrink = tl.exp2(m - m_new)
    acc = tl.dot(p.to(v.dtype), v, acc * shrink[:, None], input_precision="ieee")
    return acc, m_new, d * shrink + tl.sum(p, axis=1)


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, heads, length, scale,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_om,
    DIM: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(axis=0)
    tiles = tl.cdiv(length, BLOCK)
    tile = tiles - 1 - pid % tiles
    pair = (pid // tiles).to(tl.int64)
    b, h = pair // heads, pair % heads

    inner = tl.arange(0, BLOCK)
    dims = tl.arange(0, DIM)[None, :]
    first = (tile * BLOCK).to(tl.int64)
    there = (first + inner < length)[:, None]
    q_ptrs = q_ptr + b * stride_qb + h * stride_qh + first * stride_qm + inner[:, None] * stride_qm + dims
    k_ptrs = k_ptr + b * stride_kb + h * stride_kh + first * stride_kn + inner[:, None] * stride_kn + dims
    v_ptrs = v_ptr + b * stride_vb + h * stride_vh + first * stride_vn + inner[:, None] * stride_vn + dims

    # Query and key begin at the same position, so their places in the block decide.
    q = tl.load(q_ptrs, mask=there, other=0.0)
    k = tl.load(k_ptrs, mask=there, other=0.0)
    v = tl.load(v_ptrs, mask=there, other=0.0)
    scores = tl.dot(q, tl.trans(k), input_precision="ieee")
    scores = tl.where(inner[:, None] >= inner[None, :], scores, -float("inf"))
    m = scale * tl.max(scores, axis=1)
    p = tl.exp2(scale * scores - m[:, None])
    d = tl.sum(p, axis=1)
    acc = tl.dot(p.to(v.dtype), v, input_precision="ieee")

    for _ in range(tile):
        k_ptrs -= BLOCK * stride_kn
        v_ptrs -= BLOCK * stride_vn
        acc, m, d = fold(acc, m, d, q, tl.load(k_ptrs), tl.load(v_ptrs), scale)

    out_ptrs = out_ptr + b * stride_ob + h * stride_oh + first * stride_om + inner[:, None] * stride_om + dims
    tl.store(out_ptrs, (acc / d[:, None]).to(out_ptr.dtype.element_ty), mask=there)


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v for each head, where a query sees its own key and those before it."""
    batch, heads, length, dim = q.shape
    if out is None:
        out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    attention_kernel[lambda meta: (triton.cdiv(length, meta["BLOCK"]) * batch * heads,)](
        q, k, v, out, heads, length, math.log2(math.e) / math.sqrt(dim),
        q.stride(0), q.stride(1), q.stride(2), k.stride(0), k.stride(1), k.stride(2),
        v.stride(0), v.stride(1), v.stride(2), out.stride(0), out.stride(1), out.stride(2),
        DIM=dim,
    )  # fmt: skip
    return out
