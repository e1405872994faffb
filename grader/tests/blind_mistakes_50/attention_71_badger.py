# gpu-programming/triton-kernels/attention.py | wrong everywhere | In attention_kernel, both loops, `tl.reshape(k, (DIM, BLOCK_N))` is taken for a transposition; it should be `tl.trans(k)` (or `k.T`): reshape keeps the order of the elements, so the scores are products of q with mixed-up pieces of keys. Wrong for every length from 2 on (one key has the weight 1 in any case).
"""Causal attention with an online softmax in base 2; a program owns a tile of queries of one head, autotuned."""

import math

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"BLOCK_M": 128, "BLOCK_N": 64}, num_stages=3, num_warps=8),
    triton.Config({"BLOCK_M": 128, "BLOCK_N": 64}, num_stages=2, num_warps=8),
    triton.Config({"BLOCK_M": 64, "BLOCK_N": 64}, num_stages=3, num_warps=4),
    triton.Config({"BLOCK_M": 64, "BLOCK_N": 32}, num_stages=2, num_warps=4),
]


def fitting(configs, named_args, **kwargs):
    """Tiles no longer than the sequence; the last config for short sequences and for fp32."""
    if named_args["q_ptr"].dtype == torch.float32:
        return configs[-1:]
    kept = [config for config in configs if config.kwargs["BLOCK_M"] <= named_args["length"]]
    return kept or configs[-1:]


@triton.jit
def tile_of(base, stride, rows, DIM: tl.constexpr):
    """Addresses of some positions of one head, one a row."""
    return base + rows[:, None] * stride + tl.arange(0, DIM)[None, :]


@triton.jit
def softmax_step(scores, m, d, scale):
    """Weights of a block of scores, the factor for what was summed before, and the new m and d."""
    m_new = tl.maximum(m, tl.max(scores, axis=1) * scale)
    p = tl.exp2(scores * scale - m_new[:, None])
    factor = tl.exp2(m - m_new)
    return p, factor, m_new, d * factor + tl.sum(p, axis=1)


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, batches, heads, length, scale,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_om,
    DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """out = softmax(q k^T / sqrt(DIM)) v, causal; the tiles with the most keys are the first programs."""
    pairs = batches * heads
    pid = tl.program_id(axis=0)
    first = (tl.cdiv(length, BLOCK_M) - 1 - pid // pairs) * BLOCK_M
    batch = (pid % pairs // heads).to(tl.int64)
    head = (pid % pairs % heads).to(tl.int64)
    ahead = first.to(tl.int64)
    q_tile = q_ptr + batch * stride_qb + head * stride_qh + ahead * stride_qm
    k_now = k_ptr + batch * stride_kb + head * stride_kh
    v_now = v_ptr + batch * stride_vb + head * stride_vh
    out_tile = out_ptr + batch * stride_ob + head * stride_oh + ahead * stride_om

    offs_m, offs_n = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_N)
    rows = first + offs_m
    exists = (rows < length)[:, None]
    q = tl.load(tile_of(q_tile, stride_qm, offs_m, DIM), mask=exists, other=0.0)
    m = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)

    # All keys before the tile: each query sees them. A scalar pointer moves, the offsets stay.
    for _ in tl.range(0, first, BLOCK_N):
        k = tl.load(tile_of(k_now, stride_kn, offs_n, DIM))
        scores = tl.dot(q, tl.reshape(k, (DIM, BLOCK_N)), input_precision="ieee")
        p, factor, m, d = softmax_step(scores, m, d, scale)
        v = tl.load(tile_of(v_now, stride_vn, offs_n, DIM))
        acc = tl.dot(p.to(v.dtype), v, acc * factor[:, None], input_precision="ieee")
        k_now += BLOCK_N * stride_kn
        v_now += BLOCK_N * stride_vn

    # The keys of the tile itself: only those that are not later than the query.
    for start in tl.range(first, tl.minimum(first + BLOCK_M, length), BLOCK_N, num_stages=1):
        keys = start + offs_n
        known = (keys < length)[:, None]
        k = tl.load(tile_of(k_now, stride_kn, offs_n, DIM), mask=known, other=0.0)
        scores = tl.dot(q, tl.reshape(k, (DIM, BLOCK_N)), input_precision="ieee")
        scores = tl.where(rows[:, None] >= keys[None, :], scores, -float("inf"))
        p, factor, m, d = softmax_step(scores, m, d, scale)
        v = tl.load(tile_of(v_now, stride_vn, offs_n, DIM), mask=known, other=0.0)
        acc = tl.dot(p.to(v.dtype), v, acc * factor[:, None], input_precision="ieee")
        k_now += BLOCK_N * stride_kn
        v_now += BLOCK_N * stride_vn

    y = acc / d[:, None]
    tl.store(tile_of(out_tile, stride_om, offs_m, DIM), y.to(out_ptr.dtype.element_ty), mask=exists)


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v for (batch, heads, length, dim), where a query sees no later key."""
    if out is None:
        out = torch.empty(q.shape, device=q.device, dtype=q.dtype)
    batches, heads, length, dim = q.shape
    grid = lambda meta: (batches * heads * triton.cdiv(length, meta["BLOCK_M"]),)  # noqa: E731
    attention_kernel[grid](
        q, k, v, out, batches, heads, length, math.log2(math.e) / math.sqrt(dim),
        *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *out.stride()[:3], DIM=dim,
    )  # fmt: skip
    return out
