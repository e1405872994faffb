# gpu-programming/triton-kernels/attention.py | error | in attention the launch passes `*q.stride(), *k.stride(), *v.stride(), *out.stride()`, four strides of each tensor, where attention_kernel takes three (the last axis is contiguous): 16 numbers for 12 parameters, so the call fails in every case (several values for DIM, or too many arguments); should be *q.stride()[:3] and so on
"""Causal attention in the manner of FlashAttention-2: two sweeps over keys, before and at the diagonal."""

import math

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"BLOCK_M": 128, "BLOCK_N": 128}, num_stages=2, num_warps=8),
    triton.Config({"BLOCK_M": 128, "BLOCK_N": 64}, num_stages=3, num_warps=8),
    triton.Config({"BLOCK_M": 64, "BLOCK_N": 64}, num_stages=3, num_warps=4),
    triton.Config({"BLOCK_M": 64, "BLOCK_N": 32}, num_stages=3, num_warps=4),
    triton.Config({"BLOCK_M": 32, "BLOCK_N": 16}, num_stages=2, num_warps=4),
]


def fitting(configs, named_args, **kwargs):
    """Tiles no longer than the sequence; fp32 runs without tensor cores, and takes the smallest."""
    if named_args["q_ptr"].dtype == torch.float32:
        return configs[-1:]
    return [config for config in configs if config.kwargs["BLOCK_M"] <= named_args["length"]] or configs[-1:]


@triton.jit
def sweep(
    acc, m, d, q, queries,
    k_head, stride_kn, v_head, stride_vn,
    low, high, length, scale,
    DIM: tl.constexpr, BLOCK_N: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Fold the keys from low to high into acc, m and d."""
    dims = tl.arange(0, DIM)
    for begin in range(low, high, BLOCK_N):
        keys = begin + tl.arange(0, BLOCK_N)
        far = keys.to(tl.int64)[:, None]
        k_ptrs = k_head + far * stride_kn + dims[None, :]
        v_ptrs = v_head + far * stride_vn + dims[None, :]
        if MASKED:
            k = tl.load(k_ptrs, mask=keys[:, None] < length, other=0.0)
            v = tl.load(v_ptrs, mask=keys[:, None] < length, other=0.0)
        else:
            k = tl.load(k_ptrs)
            v = tl.load(v_ptrs)
        scores = scale * tl.dot(q, tl.trans(k), input_precision="ieee")
        if MASKED:
            scores = tl.where(keys[None, :] <= queries[:, None], scores, -float("inf"))
        highest = tl.maximum(m, tl.max(scores, axis=1))
        shrink = tl.exp2(m - highest)
        p = tl.exp2(scores - highest[:, None])
        acc = tl.dot(p.to(v.dtype), v, acc * shrink[:, None], input_precision="ieee")
        d = d * shrink + tl.sum(p, axis=1)
        m = highest
    return acc, m, d


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, heads, length, scale,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_om,
    DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    tiles = tl.cdiv(length, BLOCK_M)
    tile = tiles - 1 - tl.program_id(axis=0) % tiles
    pair = tl.program_id(axis=0) // tiles
    b, h = (pair // heads).to(tl.int64), (pair % heads).to(tl.int64)

    begin = tile * BLOCK_M
    end = tl.minimum(begin + BLOCK_M, length)
    queries = begin + tl.arange(0, BLOCK_M)
    dims = tl.arange(0, DIM)
    positions = queries.to(tl.int64)[:, None]
    exists = queries[:, None] < length

    q_head = q_ptr + b * stride_qb + h * stride_qh
    k_head = k_ptr + b * stride_kb + h * stride_kh
    v_head = v_ptr + b * stride_vb + h * stride_vh
    out_head = out_ptr + b * stride_ob + h * stride_oh

    q = tl.load(q_head + positions * stride_qm + dims[None, :], mask=exists, other=0.0)
    m = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)
    acc, m, d = sweep(
        acc, m, d, q, queries, k_head, stride_kn, v_head, stride_vn, 0, begin, length, scale,
        DIM=DIM, BLOCK_N=BLOCK_N, MASKED=False,
    )  # fmt: skip
    acc, m, d = sweep(
        acc, m, d, q, queries, k_head, stride_kn, v_head, stride_vn, begin, end, length, scale,
        DIM=DIM, BLOCK_N=BLOCK_N, MASKED=True,
    )  # fmt: skip
    tl.store(out_head + positions * stride_om + dims[None, :], acc / d[:, None], mask=exists)


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v for each head, where a query sees its own key and those before it."""
    if out is None:
        out = torch.empty_like(q, memory_format=torch.contiguous_format)
    batch, heads, length, dim = q.shape
    grid = lambda meta: (triton.cdiv(length, meta["BLOCK_M"]) * batch * heads,)
    attention_kernel[grid](
        q, k, v, out, heads, length, math.log2(math.e) * dim**-0.5,
        *q.stride(), *k.stride(), *v.stride(), *out.stride(),
        DIM=dim,
    )  # fmt: skip
    return out
