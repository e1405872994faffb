# gpu-programming/triton-kernels/attention.py | right | right
"""Causal attention with an online softmax that begins at the diagonal and goes back to the first key."""

import math

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"BLOCK_M": 128, "BLOCK_N": 128}, num_stages=2, num_warps=8),
    triton.Config({"BLOCK_M": 128, "BLOCK_N": 64}, num_stages=3, num_warps=8),
    triton.Config({"BLOCK_M": 64, "BLOCK_N": 64}, num_stages=3, num_warps=4),
    triton.Config({"BLOCK_M": 32, "BLOCK_N": 16}, num_stages=2, num_warps=2),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: tiles no longer than the sequence, and the last one alone for fp32."""
    longest = 0 if named_args["q_ptr"].dtype == torch.float32 else named_args["length"]
    return [config for config in configs if config.kwargs["BLOCK_M"] <= longest] or configs[-1:]


@triton.jit
def head_of(ptr, batch, head, position, stride_b, stride_h, stride_p):
    """Where a position of a head begins, in 64 bits."""
    return ptr + batch.to(tl.int64) * stride_b + head.to(tl.int64) * stride_h + position.to(tl.int64) * stride_p


@triton.jit
def fold(acc, m, d, scores, v):
    """acc, m and d with one more block, given its values and its scores to the base 2, -inf where hidden."""
    highest = tl.maximum(m, tl.max(scores, 1))
    old = tl.exp2(m - highest)
    p = tl.exp2(scores - highest[:, None])
    acc = tl.dot(p.to(v.dtype), v, acc * old[:, None], input_precision="ieee")
    return acc, highest, d * old + tl.sum(p, 1)


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, heads, length, scale,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_om,
    DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """A program owns BLOCK_M rows of one head.

    The blocks at the diagonal come first, in their order: every row sees the first key of its tile, so m is a
    number after one block. Then the full blocks, from the nearest to the farthest.
    """
    batch, head = tl.program_id(0) // heads, tl.program_id(0) % heads
    first = (tl.num_programs(1) - 1 - tl.program_id(1)) * BLOCK_M
    i, j, c = tl.arange(0, BLOCK_M)[:, None], tl.arange(0, BLOCK_N), tl.arange(0, DIM)
    k_tile = j[None, :] * stride_kn + c[:, None]
    v_tile = j[:, None] * stride_vn + c[None, :]
    k_first = head_of(k_ptr, batch, head, first, stride_kb, stride_kh, stride_kn)
    v_first = head_of(v_ptr, batch, head, first, stride_vb, stride_vh, stride_vn)

    q_first = head_of(q_ptr, batch, head, first, stride_qb, stride_qh, stride_qm)
    q = tl.load(q_first + i * stride_qm + c[None, :], mask=first + i < length, other=0.0)

    m = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)

    k_now, v_now = k_first, v_first
    for begin in tl.range(0, tl.minimum(BLOCK_M, length - first), BLOCK_N, num_stages=1):
        ahead = begin + j  # keys counted from the first query of the tile, like i
        there = first + ahead < length
        k = tl.load(k_now + k_tile, mask=there[None, :], other=0.0)
        v = tl.load(v_now + v_tile, mask=there[:, None], other=0.0)
        scores = tl.dot(q, k, input_precision="ieee") * scale
        scores += tl.where(ahead[None, :] > i, -float("inf"), 0.0)
        acc, m, d = fold(acc, m, d, scores, v)
        k_now += BLOCK_N * stride_kn
        v_now += BLOCK_N * stride_vn

    k_now, v_now = k_first, v_first
    for _back in tl.range(0, first, BLOCK_N):
        k_now -= BLOCK_N * stride_kn
        v_now -= BLOCK_N * stride_vn
        k = tl.load(k_now + k_tile)
        v = tl.load(v_now + v_tile)
        acc, m, d = fold(acc, m, d, tl.dot(q, k, input_precision="ieee") * scale, v)

    out_first = head_of(out_ptr, batch, head, first, stride_ob, stride_oh, stride_om)
    result = acc / d[:, None]
    tl.store(
        out_first + i * stride_om + c[None, :], result.to(out_ptr.dtype.element_ty), mask=first + i < length
    )


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v for each head, where a query sees its own key and those before it."""
    batch, heads, length, dim = q.shape
    if out is None:
        out = torch.empty((batch, heads, length, dim), dtype=q.dtype, device=q.device)

    def grid(meta):
        return batch * heads, triton.cdiv(length, meta["BLOCK_M"])

    strides = [*q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *out.stride()[:3]]
    attention_kernel[grid](q, k, v, out, heads, length, math.log2(math.e) / math.sqrt(dim), *strides, DIM=dim)
    return out
