# gpu-programming/triton-kernels/attention.py | right | right
"""Causal attention, the keys beside the diagonal first and all earlier ones after them, autotuned."""

import math

import torch
import triton
import triton.language as tl

# (queries, keys of a step, stages, warps): each BLOCK_M is a multiple of its BLOCK_N.
TILES = ((128, 64, 3, 8), (64, 64, 3, 4), (64, 32, 4, 4), (32, 16, 2, 4))
CONFIGS = [
    triton.Config({"BLOCK_M": queries, "BLOCK_N": keys}, num_stages=stages, num_warps=warps)
    for queries, keys, stages, warps in TILES
]


def fitting(configs, named_args, **kwargs):
    """16 bits take the tiles that the sequence fills; fp32, without tensor cores, takes the smallest."""
    half = named_args["q_ptr"].dtype != torch.float32
    filled = [c for c in configs if half and c.kwargs["BLOCK_M"] <= named_args["length"]]
    return filled or configs[-1:]


@triton.jit
def absorb(acc, mass, top, q, k, v, scale, rows, keys, MASKED: tl.constexpr):
    """One block of keys and values: acc and mass are sums of exp2(scale * score - top), with v and without."""
    scores = tl.dot(q, tl.trans(k), input_precision="ieee")
    if MASKED:
        scores = tl.where(rows[:, None] >= keys[None, :], scores, -float("inf"))
    raised = tl.maximum(top, tl.max(scores, axis=1) * scale)
    shrink = tl.exp2(top - raised)
    p = tl.exp2(scores * scale - raised[:, None])
    mass = mass * shrink + tl.sum(p, axis=1)
    acc = tl.dot(p.to(v.dtype), v, acc * shrink[:, None], input_precision="ieee")
    return acc, mass, raised


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, pairs, heads, length, scale,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_om,
    DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """A program owns BLOCK_M queries of one of the pairs of batch and head; scale is log2(e) / sqrt(DIM)."""
    pid = tl.program_id(axis=0)
    # The last queries of all heads start first: they have the most keys.
    first = (tl.cdiv(length, BLOCK_M) - 1 - pid // pairs) * BLOCK_M
    pair = pid % pairs
    b, h = (pair // heads).to(tl.int64), (pair % heads).to(tl.int64)
    skip = first.to(tl.int64)

    lines, steps, dims = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_N), tl.arange(0, DIM)
    rows = first + lines
    alive = (rows < length)[:, None]
    q_at = q_ptr + b * stride_qb + h * stride_qh + skip * stride_qm
    q = tl.load(q_at + lines[:, None] * stride_qm + dims[None, :], mask=alive, other=0.0)
    k_head = k_ptr + b * stride_kb + h * stride_kh
    v_head = v_ptr + b * stride_vb + h * stride_vh
    k_block = steps[:, None] * stride_kn + dims[None, :]
    v_block = steps[:, None] * stride_vn + dims[None, :]

    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)
    mass = tl.zeros((BLOCK_M,), dtype=tl.float32)
    top = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)

    # Key number `first` is in the first block, and no query of the tile is before it: top is finite at once.
    k_at, v_at = k_head + skip * stride_kn, v_head + skip * stride_vn
    for start in tl.range(first, tl.minimum(first + BLOCK_M, length), BLOCK_N, num_stages=1):
        keys = start + steps
        there = (keys < length)[:, None]
        k = tl.load(k_at + k_block, mask=there, other=0.0)
        v = tl.load(v_at + v_block, mask=there, other=0.0)
        acc, mass, top = absorb(acc, mass, top, q, k, v, scale, rows, keys, True)
        k_at += BLOCK_N * stride_kn
        v_at += BLOCK_N * stride_vn

    k_at, v_at = k_head, v_head
    for _ in range(0, first, BLOCK_N):
        k = tl.load(k_at + k_block)
        v = tl.load(v_at + v_block)
        acc, mass, top = absorb(acc, mass, top, q, k, v, scale, rows, steps, False)
        k_at += BLOCK_N * stride_kn
        v_at += BLOCK_N * stride_vn

    out_at = out_ptr + b * stride_ob + h * stride_oh + skip * stride_om
    result = (acc / mass[:, None]).to(out_ptr.dtype.element_ty)
    tl.store(out_at + lines[:, None] * stride_om + dims[None, :], result, mask=alive)


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Causal softmax(q k^T / sqrt(dim)) v for (batch, heads, length, dim), the last axis contiguous."""
    batch, heads, length, dim = q.shape
    if out is None:
        out = torch.empty((batch, heads, length, dim), dtype=q.dtype, device=q.device)
    pairs = batch * heads
    strides = [tensor.stride(axis) for tensor in (q, k, v, out) for axis in (0, 1, 2)]
    scale = math.log2(math.e) / math.sqrt(dim)
    grid = lambda tile: (pairs * triton.cdiv(length, tile["BLOCK_M"]),)  # noqa: E731
    attention_kernel[grid](
        q, k, v, out, pairs, heads, length, scale, *strides, DIM=dim
    )
    return out
