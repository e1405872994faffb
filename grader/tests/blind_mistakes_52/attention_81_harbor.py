# gpu-programming/triton-kernels/attention.py | right | The masked blocks at the diagonal come first, then the full blocks from the tile back to the beginning of the sequence (`for back in tl.range(BLOCK_N, first + BLOCK_N, BLOCK_N)`); positions are counted relative to the tile, the mask is added to the scores as 0 or -inf, and v is loaded after the softmax.
"""Causal attention from the diagonal outwards: the keys of the tile itself first, then back to the beginning."""

import math

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, num_stages, num_warps):
    """One candidate; BLOCK_N divides BLOCK_M, so that the blocks before the tile need no mask."""
    return triton.Config({"BLOCK_M": block_m, "BLOCK_N": block_n}, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 64, 3, 8),
    _config(128, 64, 2, 8),
    _config(64, 64, 3, 4),
    _config(32, 32, 2, 4),
]


def fitting(configs, named_args, **kwargs):
    """Tiles no longer than the sequence, and the last one alone for fp32, which has no tensor cores."""
    q = named_args["q_ptr"]
    longest = 0 if q.dtype == torch.float32 else named_args["length"]
    return [config for config in configs if config.kwargs["BLOCK_M"] <= longest] or configs[-1:]


@triton.jit
def locate(ptr, batch, head, position, stride_b, stride_h, stride_m):
    """Where the rows from a position of one head begin; the product of each number and its stride is int64."""
    return (
        ptr + batch.to(tl.int64) * stride_b + head.to(tl.int64) * stride_h + position.to(tl.int64) * stride_m
    )


@triton.jit
def step(
    acc, m, d, q, k_start, v_start, stride_kn, stride_vn, left, ahead, scale,
    DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, EDGE: tl.constexpr,
):  # fmt: skip
    """One block of keys: `left` of them exist, and its first is `ahead` positions after the first query."""
    dims, keys = tl.arange(0, DIM)[None, :], tl.arange(0, BLOCK_N)
    k_ptrs = k_start + keys.to(tl.int64)[:, None] * stride_kn + dims
    v_ptrs = v_start + keys.to(tl.int64)[:, None] * stride_vn + dims
    if EDGE:
        k = tl.load(k_ptrs, mask=keys[:, None] < left, other=0.0)
    else:
        k = tl.load(k_ptrs)
    scores = tl.dot(q, tl.trans(k), input_precision="ieee")
    if EDGE:
        queries = tl.arange(0, BLOCK_M)
        scores += tl.where(queries[:, None] >= keys[None, :] + ahead, 0.0, -float("inf"))
    m_new = tl.maximum(m, scale * tl.max(scores, axis=1))
    p = tl.exp2(scale * scores - m_new[:, None])
    factor = tl.exp2(m - m_new)
    if EDGE:
        v = tl.load(v_ptrs, mask=keys[:, None] < left, other=0.0)
    else:
        v = tl.load(v_ptrs)
    acc = tl.dot(p.to(v.dtype), v, acc * factor[:, None], input_precision="ieee")
    return acc, m_new, d * factor + tl.sum(p, axis=1)


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, heads, length, scale,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_om,
    DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """All heads of the last tile first: it has the most keys."""
    pid, tiles = tl.program_id(axis=0), tl.cdiv(length, BLOCK_M)
    per_tile = tl.num_programs(axis=0) // tiles
    first = (tiles - 1 - pid // per_tile) * BLOCK_M
    batch, head = pid % per_tile // heads, pid % per_tile % heads

    queries, dims = tl.arange(0, BLOCK_M), tl.arange(0, DIM)[None, :]
    exists = (first + queries)[:, None] < length
    q_start = locate(q_ptr, batch, head, first, stride_qb, stride_qh, stride_qm)
    q = tl.load(q_start + queries.to(tl.int64)[:, None] * stride_qm + dims, mask=exists, other=0.0)

    # Position 0 of the head, as an int32 scalar.
    k_head = locate(k_ptr, batch, head, first * 0, stride_kb, stride_kh, stride_kn)
    v_head = locate(v_ptr, batch, head, first * 0, stride_vb, stride_vh, stride_vn)

    m = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)

    # The first block has position `first`, which each query of the tile sees: m is finite from then on.
    for ahead in tl.range(0, tl.minimum(BLOCK_M, length - first), BLOCK_N, num_stages=1):
        position = (first + ahead).to(tl.int64)
        acc, m, d = step(
            acc, m, d, q, k_head + position * stride_kn, v_head + position * stride_vn, stride_kn, stride_vn,
            length - first - ahead, ahead, scale, DIM, BLOCK_M, BLOCK_N, EDGE=True,
        )  # fmt: skip
    for back in tl.range(BLOCK_N, first + BLOCK_N, BLOCK_N):
        position = (first - back).to(tl.int64)
        acc, m, d = step(
            acc, m, d, q, k_head + position * stride_kn, v_head + position * stride_vn, stride_kn, stride_vn,
            BLOCK_N, 0, scale, DIM, BLOCK_M, BLOCK_N, EDGE=False,
        )  # fmt: skip

    out_start = locate(out_ptr, batch, head, first, stride_ob, stride_oh, stride_om)
    result = (acc * (1.0 / d)[:, None]).to(out_ptr.dtype.element_ty)
    tl.store(out_start + queries.to(tl.int64)[:, None] * stride_om + dims, result, mask=exists)


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v for each head, where a query sees its own key and those before it.

    q, k and v are (batch, heads, length, dim), bf16, fp16 or fp32, dim 16, 32, 64 or 128 and contiguous, any
    length from 1 on; the result goes to `out`, like q, where one is given.
    """
    batch, heads, length, dim = q.shape
    if out is None:
        out = torch.empty((batch, heads, length, dim), dtype=q.dtype, device=q.device)
    strides = [x.stride(axis) for x in (q, k, v, out) for axis in (0, 1, 2)]

    def grid(meta):
        return (triton.cdiv(length, meta["BLOCK_M"]) * batch * heads,)

    attention_kernel[grid](q, k, v, out, heads, length, math.log2(math.e) / math.sqrt(dim), *strides, DIM=dim)
    return out
