# gpu-programming/triton-kernels/attention.py | corner | in attention_kernel, `tl.max(scores)` lacks axis=1: it is one maximum over all queries of the tile, not one for each row. Any common number cancels, so ordinary scores come out right; but where a row's own maximum lies far below the largest score of its tile (queries past the end, whose scores are 0, count too), its weights underflow: NaN from 0 / 0 or lost keys with huge scores or scores all far below 0 (gap above about 126 in powers of two), lost digits in fp16 already from a gap of about 14. It should be tl.max(scores, axis=1)
"""Causal attention; one body of code for the keys before the tile and for those at the diagonal."""

import math

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config(dict(BLOCK_M=128, BLOCK_N=64), num_stages=3, num_warps=8),
    triton.Config(dict(BLOCK_M=64, BLOCK_N=64), num_stages=3, num_warps=4),
    triton.Config(dict(BLOCK_M=64, BLOCK_N=32), num_stages=2, num_warps=4),
    triton.Config(dict(BLOCK_M=32, BLOCK_N=32), num_stages=2, num_warps=4),
]


def fitting(configs, named_args, **kwargs):
    """The smallest tile for fp32 and for short sequences, else all that fit."""
    if named_args["q_ptr"].dtype == torch.float32 or named_args["length"] < 64:
        return configs[-1:]
    return [config for config in configs if config.kwargs["BLOCK_M"] <= named_args["length"]]


@triton.jit
def start_of(ptr, batch, head, stride_batch, stride_head):
    """Position 0 of one head."""
    return ptr + batch.to(tl.int64) * stride_batch + head.to(tl.int64) * stride_head


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, heads, length, scale,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_om,
    DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    tiles = tl.cdiv(length, BLOCK_M)
    index = tl.program_id(axis=0)
    first = (tiles - 1 - index % tiles) * BLOCK_M
    head = index // tiles % heads
    batch = index // tiles // heads

    queries = first + tl.arange(0, BLOCK_M)
    features = tl.arange(0, DIM)
    lanes = tl.arange(0, BLOCK_N)
    present = (queries < length)[:, None]
    q_head = start_of(q_ptr, batch, head, stride_qb, stride_qh)
    k_ptrs = start_of(k_ptr, batch, head, stride_kb, stride_kh) + lanes[:, None] * stride_kn + features[None, :]
    v_ptrs = start_of(v_ptr, batch, head, stride_vb, stride_vh) + lanes[:, None] * stride_vn + features[None, :]
    q = tl.load(q_head + queries.to(tl.int64)[:, None] * stride_qm + features[None, :], mask=present, other=0.0)

    m = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)

    # Part 0: the keys before the tile, all of them visible. Part 1: those that the diagonal crosses.
    for part in tl.static_range(2):
        begin = part * first
        end = tl.minimum(first + part * BLOCK_M, length)
        for start in range(begin, end, BLOCK_N):
            keys = start + lanes
            if part == 0:
                k = tl.load(k_ptrs)
                v = tl.load(v_ptrs)
            else:
                k = tl.load(k_ptrs, mask=(keys < length)[:, None], other=0.0)
                v = tl.load(v_ptrs, mask=(keys < length)[:, None], other=0.0)
            scores = scale * tl.dot(q, tl.trans(k), input_precision="ieee")
            if part == 1:
                scores = tl.where(queries[:, None] >= keys[None, :], scores, -float("inf"))

            m_new = tl.maximum(m, tl.max(scores))
            rescale = tl.exp2(m - m_new)
            p = tl.exp2(scores - m_new[:, None])
            d = d * rescale + tl.sum(p, axis=1)
            acc = acc * rescale[:, None]
            acc = tl.dot(p.to(v.dtype), v, acc, input_precision="ieee")
            m = m_new
            k_ptrs += BLOCK_N * stride_kn
            v_ptrs += BLOCK_N * stride_vn

    out_head = start_of(out_ptr, batch, head, stride_ob, stride_oh)
    tl.store(
        out_head + queries.to(tl.int64)[:, None] * stride_om + features[None, :],
        (acc / d[:, None]).to(q.dtype),
        mask=present,
    )


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v for each head, where a query sees its own key and those before it."""
    if out is None:
        out = torch.empty_like(q, memory_format=torch.contiguous_format)
    batch, heads, length, dim = q.shape
    qb, qh, qm, _ = q.stride()
    kb, kh, kn, _ = k.stride()
    vb, vh, vn, _ = v.stride()
    ob, oh, om, _ = out.stride()
    scale = 1.0 / (math.log(2.0) * math.sqrt(dim))
    attention_kernel[lambda meta: (batch * heads * triton.cdiv(length, meta["BLOCK_M"]),)](
        q, k, v, out, heads, length, scale, qb, qh, qm, kb, kh, kn, vb, vh, vn, ob, oh, om, DIM=dim
    )
    return out
