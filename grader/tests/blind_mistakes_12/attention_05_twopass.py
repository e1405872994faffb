# gpu-programming/triton-kernels/attention.py | right | two passes over the keys: the first finds maximum and sum of each row, the second computes the scores again and adds up p @ v with the final maximum, so acc is never rescaled; natural exp; queries and heads on one axis; all of it is right
"""Causal attention in two passes: first the softmax of each row, then its product with the values.

It multiplies q by k twice. In return the sum of the values never changes its scale, and the second loop has no reductions.
"""

import math
from typing import Optional

import torch
import triton
import triton.language as tl


def _config(block_m: int, block_n: int, num_stages: int, num_warps: int) -> triton.Config:
    return triton.Config({"BLOCK_M": block_m, "BLOCK_N": block_n}, num_stages=num_stages, num_warps=num_warps)


# Here BLOCK_N need not divide BLOCK_M: each block of keys is masked.
CONFIGS = [
    _config(128, 64, 2, 8),
    _config(64, 128, 2, 8),
    _config(64, 64, 2, 4),
    _config(32, 32, 2, 4),
    _config(16, 32, 2, 2),
]


def fitting(configs, named_args, **kwargs):
    """Tiles up to the length of the sequence; the smallest for fp32."""
    length = named_args["length"]
    if named_args["q_ptr"].dtype == torch.float32 or length < 32:
        return configs[-1:]
    return [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= length]


@triton.jit
def block_scores(q, k_ptr, start, offs_m, offs_d, stride_kn, length, scale, BLOCK_N: tl.constexpr):
    """Scores of one block of keys, -inf where a query must not look."""
    keys = start + tl.arange(0, BLOCK_N)
    # k is loaded as (DIM, BLOCK_N), as the product needs it
    k = tl.load(
        k_ptr + keys.to(tl.int64)[None, :] * stride_kn + offs_d[:, None], mask=keys[None, :] < length, other=0.0
    )
    s = tl.dot(q, k, input_precision="ieee") * scale
    return tl.where(keys[None, :] <= offs_m[:, None], s, float("-inf"))


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def two_pass_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, heads, length, scale,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_om,
    DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    tiles = tl.cdiv(length, BLOCK_M)
    tile = tl.program_id(0) % tiles
    sequence = tl.program_id(0) // tiles
    b = (sequence // heads).to(tl.int64)
    h = (sequence % heads).to(tl.int64)
    q_ptr += b * stride_qb + h * stride_qh
    k_ptr += b * stride_kb + h * stride_kh
    v_ptr += b * stride_vb + h * stride_vh
    out_ptr += b * stride_ob + h * stride_oh

    offs_m = tile * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_d = tl.arange(0, DIM)
    rows = offs_m.to(tl.int64)[:, None]
    q = tl.load(q_ptr + rows * stride_qm + offs_d[None, :], mask=rows < length, other=0.0)
    # One past the last key that any row of the tile sees.
    end = tl.minimum((tile + 1) * BLOCK_M, length)

    m = tl.full((BLOCK_M,), float("-inf"), dtype=tl.float32)
    d = tl.zeros((BLOCK_M,), dtype=tl.float32)
    for start in range(0, end, BLOCK_N):
        s = block_scores(q, k_ptr, start, offs_m, offs_d, stride_kn, length, scale, BLOCK_N)
        higher = tl.maximum(m, tl.max(s, axis=1))
        d = d * tl.exp(m - higher) + tl.sum(tl.exp(s - higher[:, None]), axis=1)
        m = higher

    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)
    for start in range(0, end, BLOCK_N):
        s = block_scores(q, k_ptr, start, offs_m, offs_d, stride_kn, length, scale, BLOCK_N)
        p = tl.exp(s - m[:, None])
        keys = (start + tl.arange(0, BLOCK_N)).to(tl.int64)[:, None]
        v = tl.load(v_ptr + keys * stride_vn + offs_d[None, :], mask=keys < length, other=0.0)
        acc = tl.dot(p.to(v.dtype), v, acc, input_precision="ieee")

    # Divide at the end: p / d of a long row would be too small for 16 bits.
    acc = acc / d[:, None]
    tl.store(out_ptr + rows * stride_om + offs_d[None, :], acc.to(out_ptr.dtype.element_ty), mask=rows < length)


def attention(q, k, v, *, out: Optional[torch.Tensor] = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v for each head; a query sees its own key and those before it."""
    batch, heads, length, dim = q.shape
    if out is None:
        out = q.new_empty((batch, heads, length, dim))

    def grid(meta):
        return (batch * heads * triton.cdiv(length, meta["BLOCK_M"]),)

    two_pass_kernel[grid](
        q, k, v, out, heads, length, 1.0 / math.sqrt(dim),
        *q.stride()[:-1], *k.stride()[:-1], *v.stride()[:-1], *out.stride()[:-1],
        DIM=dim,
    )  # fmt: skip
    return out
