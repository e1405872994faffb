# gpu-programming/triton-kernels/attention.py | right | The blocks at the diagonal come first, then those before the tile from right to left with descending pointers; both loops share the softmax step; tiles with the most keys first in a one-dimensional grid.
"""Causal attention from the diagonal to the left: the keys beside a query come first, the oldest ones last."""

import math

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, num_stages, num_warps):
    """One candidate: queries of a program and keys of a step, powers of two, pipeline depth and warps."""
    return triton.Config({"BLOCK_M": block_m, "BLOCK_N": block_n}, num_stages=num_stages, num_warps=num_warps)


# BLOCK_N divides BLOCK_M: what lies to the left of a tile is whole blocks.
CONFIGS = [
    _config(128, 128, 2, 8),
    _config(128, 64, 3, 8),
    _config(64, 64, 3, 4),
    _config(32, 32, 2, 4),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: tiles no longer than the sequence, and the last one alone for fp32."""
    longest = 0 if named_args["q_ptr"].dtype == torch.float32 else named_args["length"]
    return [config for config in configs if config.kwargs["BLOCK_M"] <= longest] or configs[-1:]


@triton.jit
def include(acc, m, d, scores, v, scale):
    """acc, m and d with the values v, weighted by exp2(scale * scores); both sums are relative to exp2(m)."""
    top = tl.maximum(m, scale * tl.max(scores, axis=1))
    weights = tl.exp2(scale * scores - top[:, None])
    shrink = tl.exp2(m - top)
    acc = tl.dot(weights.to(v.dtype), v, acc * shrink[:, None], input_precision="ieee")
    return acc, top, d * shrink + tl.sum(weights, axis=1)


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, pairs, heads, length, scale,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_om,
    DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """A program owns BLOCK_M queries of one of `pairs` heads, counted over all batches; late queries come first.

    q, k, v and out are (batch, heads, length, DIM), the last dimension contiguous, any strides before it.
    scale is log2(e) / sqrt(DIM).
    """
    pid = tl.program_id(axis=0)
    tile = tl.num_programs(axis=0) // pairs - 1 - pid // pairs
    pair = pid % pairs
    batch, head = (pair // heads).to(tl.int64), (pair % heads).to(tl.int64)
    first = tile * BLOCK_M
    begin = first.to(tl.int64)

    dims = tl.arange(0, DIM)[None, :]
    lanes_m = tl.arange(0, BLOCK_M)
    lanes_n = tl.arange(0, BLOCK_N)
    queries = first + lanes_m
    q_tile = q_ptr + batch * stride_qb + head * stride_qh + begin * stride_qm
    k_tile = k_ptr + batch * stride_kb + head * stride_kh + begin * stride_kn
    v_tile = v_ptr + batch * stride_vb + head * stride_vh + begin * stride_vn
    out_tile = out_ptr + batch * stride_ob + head * stride_oh + begin * stride_om
    k_offsets = lanes_n[:, None] * stride_kn + dims
    v_offsets = lanes_n[:, None] * stride_vn + dims

    q = tl.load(q_tile + lanes_m[:, None] * stride_qm + dims, mask=queries[:, None] < length, other=0.0)
    m = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)

    # The first block holds the tile's first position, which each of its queries sees: m is finite after it.
    k_now, v_now = k_tile, v_tile
    for start in tl.range(first, tl.minimum(first + BLOCK_M, length), BLOCK_N, num_stages=1):
        keys = start + lanes_n
        k = tl.load(k_now + k_offsets, mask=keys[:, None] < length, other=0.0)
        v = tl.load(v_now + v_offsets, mask=keys[:, None] < length, other=0.0)
        scores = tl.dot(q, tl.trans(k), input_precision="ieee")
        scores = tl.where(keys[None, :] > queries[:, None], -float("inf"), scores)
        acc, m, d = include(acc, m, d, scores, v, scale)
        k_now += BLOCK_N * stride_kn
        v_now += BLOCK_N * stride_vn

    for behind in range(0, first, BLOCK_N):
        k_tile -= BLOCK_N * stride_kn
        v_tile -= BLOCK_N * stride_vn
        k = tl.load(k_tile + k_offsets)
        scores = tl.dot(q, tl.trans(k), input_precision="ieee")
        v = tl.load(v_tile + v_offsets)
        acc, m, d = include(acc, m, d, scores, v, scale)

    result = (acc / d[:, None]).to(out_ptr.dtype.element_ty)
    tl.store(out_tile + lanes_m[:, None] * stride_om + dims, result, mask=queries[:, None] < length)


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v for each head, where a query sees its own key and those before it.

    q, k and v are (batch, heads, length, dim), bf16, fp16 or fp32, dim 16, 32, 64 or 128 and contiguous, any
    length from 1 on; the result goes to `out`, like q, where one is given.
    """
    batch, heads, length, dim = q.shape
    if out is None:
        out = torch.empty((batch, heads, length, dim), device=q.device, dtype=q.dtype)
    pairs, scale = batch * heads, math.log2(math.e) / math.sqrt(dim)
    grid = lambda meta: (pairs * triton.cdiv(length, meta["BLOCK_M"]),)  # noqa: E731
    attention_kernel[grid](
        q, k, v, out, pairs, heads, length, scale,
        q.stride(0), q.stride(1), q.stride(2), k.stride(0), k.stride(1), k.stride(2),
        v.stride(0), v.stride(1), v.stride(2), out.stride(0), out.stride(1), out.stride(2),
        DIM=dim,
    )  # fmt: skip
    return out
