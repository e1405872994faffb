# gpu-programming/triton-kernels/attention.py | wrong everywhere | in `fold`, `acc = tl.dot(p.to(v.dtype), v, acc, ...) * factor[:, None]` multiplies the block's own product p @ v by factor = exp2(m - higher) as well, after adding instead of before; in the first block m is -inf and factor 0, so everything of the first block of keys is lost, and later blocks are scaled by their own factor once too often, while d is right: results are exactly 0 where a query has only one block of keys (also for length 1) and wrong in every other row; it should be `tl.dot(p.to(v.dtype), v, acc * factor[:, None], ...)`
"""Causal attention without the matrix of scores: online softmax over blocks of keys, autotuned."""

import math

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, num_stages, num_warps):
    """One candidate: queries of a program and keys of a step, powers of two, pipeline depth and warps."""
    return triton.Config({"BLOCK_M": block_m, "BLOCK_N": block_n}, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 128, 2, 8),
    _config(128, 64, 3, 8),
    _config(64, 64, 3, 4),
    _config(32, 32, 2, 4),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: tiles no longer than the sequence, and the last one alone for fp32."""
    # Exact fp32 runs without tensor cores, where a large tile unrolls into thousands of instructions.
    longest = 0 if named_args["q_ptr"].dtype == torch.float32 else named_args["length"]
    return [config for config in configs if config.kwargs["BLOCK_M"] <= longest] or configs[-1:]


@triton.jit
def fold(acc, m, d, q, k_ptrs, v_ptrs, offs_m, keys, length, scale, DIAGONAL: tl.constexpr):
    """The sums acc of p * v and d of p with one more block of keys, and their common exponent m."""
    if DIAGONAL:
        exists = (keys < length)[:, None]
        k = tl.load(k_ptrs, mask=exists, other=0.0)
        v = tl.load(v_ptrs, mask=exists, other=0.0)
    else:
        k = tl.load(k_ptrs)
        v = tl.load(v_ptrs)
    scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
    if DIAGONAL:
        scores = tl.where(offs_m[:, None] >= keys[None, :], scores, -float("inf"))
    higher = tl.maximum(m, tl.max(scores, axis=1))
    factor = tl.exp2(m - higher)
    p = tl.exp2(scores - higher[:, None])
    acc = tl.dot(p.to(v.dtype), v, acc, input_precision="ieee") * factor[:, None]
    d = d * factor + tl.sum(p, axis=1)
    return acc, higher, d


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, heads, length, scale,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_om,
    DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """out[i, :] = sum over j <= i of softmax(q k^T)[i, j] v[j, :]; a program owns BLOCK_M rows of one head.

    Axis 0 of the grid has the heads of all batches, axis 1 the tiles of queries, the last tile first.
    """
    pair = tl.program_id(axis=0)
    batch = (pair // heads).to(tl.int64)
    head = (pair % heads).to(tl.int64)
    first = (tl.num_programs(axis=1) - 1 - tl.program_id(axis=1)) * BLOCK_M

    dims = tl.arange(0, DIM)[None, :]
    offs_m = first + tl.arange(0, BLOCK_M)
    positions = offs_m.to(tl.int64)[:, None]
    queries = (offs_m < length)[:, None]
    q_ptrs = q_ptr + batch * stride_qb + head * stride_qh + positions * stride_qm + dims
    q = tl.load(q_ptrs, mask=queries, other=0.0)

    steps = tl.arange(0, BLOCK_N)
    places = steps.to(tl.int64)[:, None]
    k_ptrs = k_ptr + batch * stride_kb + head * stride_kh + places * stride_kn + dims
    v_ptrs = v_ptr + batch * stride_vb + head * stride_vh + places * stride_vn + dims
    k_hop = tl.cast(stride_kn, tl.int64) * BLOCK_N
    v_hop = tl.cast(stride_vn, tl.int64) * BLOCK_N

    m = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)
    for start in tl.range(0, first, BLOCK_N):
        acc, m, d = fold(
            acc, m, d, q, k_ptrs, v_ptrs, offs_m, start + steps, length, scale, DIAGONAL=False
        )
        k_ptrs += k_hop
        v_ptrs += v_hop
    end = tl.minimum(first + BLOCK_M, length)
    for start in tl.range(first, end, BLOCK_N, num_stages=1):
        acc, m, d = fold(
            acc, m, d, q, k_ptrs, v_ptrs, offs_m, start + steps, length, scale, DIAGONAL=True
        )
        k_ptrs += k_hop
        v_ptrs += v_hop

    out_ptrs = out_ptr + batch * stride_ob + head * stride_oh + positions * stride_om + dims
    tl.store(out_ptrs, (acc / d[:, None]).to(out_ptr.dtype.element_ty), mask=queries)


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v for each head, where a query sees its own key and those before it."""
    out = torch.empty_like(q, memory_format=torch.contiguous_format) if out is None else out
    batch, heads, length, dim = q.shape

    def grid(meta):
        return (batch * heads, triton.cdiv(length, meta["BLOCK_M"]))

    attention_kernel[grid](
        q, k, v, out, heads, length, math.log2(math.e) / math.sqrt(dim),
        *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *out.stride()[:3],
        DIM=dim,
    )  # fmt: skip
    return out
