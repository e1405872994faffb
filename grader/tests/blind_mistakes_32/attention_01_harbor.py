# gpu-programming/triton-kernels/attention.py | corner | in attention_kernel the last tile is taken as `length // BLOCK_M`, so tiles are numbered from the wrong end when length is a multiple of BLOCK_M: every program works one tile too late, the first tile (queries 0 to BLOCK_M - 1) is never written and a tile past the end is computed for nothing; right for all other lengths; should be (length - 1) // BLOCK_M, that is cdiv(length, BLOCK_M) - 1
"""Causal attention without the matrix of scores: online softmax over blocks of keys, autotuned."""

import math

import torch
import triton
import triton.language as tl

# Queries of a program, keys of a step, pipeline depth, warps; the small one for short sequences and fp32.
SHAPES = ((128, 128, 2, 8), (128, 64, 3, 8), (64, 64, 3, 4), (16, 16, 1, 2))
CONFIGS = [
    triton.Config({"BLOCK_M": block_m, "BLOCK_N": block_n}, num_stages=stages, num_warps=warps)
    for block_m, block_n, stages, warps in SHAPES
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: tiles no longer than the sequence, and the last one alone for fp32."""
    longest = 0 if named_args["q_ptr"].dtype == torch.float32 else named_args["length"]
    return [config for config in configs if config.kwargs["BLOCK_M"] <= longest] or configs[-1:]


@triton.jit
def fold(acc, m, d, q, k_ptrs, v_ptrs, offs_m, keys, length, scale, DIAGONAL: tl.constexpr):
    """The sums acc of p * v and d of p with one more block of keys, and the maximum m they refer to."""
    if DIAGONAL:
        exists = keys < length
        k = tl.load(k_ptrs, mask=exists[None, :], other=0.0)
        v = tl.load(v_ptrs, mask=exists[:, None], other=0.0)
    else:
        k = tl.load(k_ptrs)
        v = tl.load(v_ptrs)
    scores = tl.dot(q, k, input_precision="ieee") * scale
    if DIAGONAL:
        scores = tl.where(offs_m[:, None] >= keys[None, :], scores, -float("inf"))
    m_new = tl.maximum(m, tl.max(scores, axis=1))
    alpha = tl.exp2(m - m_new)
    p = tl.exp2(scores - m_new[:, None])
    d = d * alpha + tl.sum(p, axis=1)
    acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None], input_precision="ieee")
    return acc, m_new, d


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, heads, length, scale,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_om,
    DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """A program owns BLOCK_M queries of one head; the tiles with the most keys have the lowest numbers."""
    pid = tl.program_id(axis=0)
    tiles = tl.cdiv(length, BLOCK_M)
    last = length // BLOCK_M
    start = (last - pid % tiles) * BLOCK_M
    batch = (pid // tiles // heads).to(tl.int64)
    head = (pid // tiles % heads).to(tl.int64)
    first = start.to(tl.int64)

    rows = tl.arange(0, BLOCK_M)
    steps = tl.arange(0, BLOCK_N)
    dims = tl.arange(0, DIM)
    offs_m = start + rows
    mine = (offs_m < length)[:, None]

    q_tile = q_ptr + batch * stride_qb + head * stride_qh + first * stride_qm
    q = tl.load(q_tile + rows[:, None] * stride_qm + dims[None, :], mask=mine, other=0.0)
    k_ptrs = k_ptr + batch * stride_kb + head * stride_kh + (steps[None, :] * stride_kn + dims[:, None])
    v_ptrs = v_ptr + batch * stride_vb + head * stride_vh + (steps[:, None] * stride_vn + dims[None, :])

    m = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)
    for key in range(0, start, BLOCK_N):
        acc, m, d = fold(acc, m, d, q, k_ptrs, v_ptrs, offs_m, key + steps, length, scale, DIAGONAL=False)
        k_ptrs += BLOCK_N * stride_kn
        v_ptrs += BLOCK_N * stride_vn
    for key in tl.range(start, tl.minimum(start + BLOCK_M, length), BLOCK_N, num_stages=1):
        acc, m, d = fold(acc, m, d, q, k_ptrs, v_ptrs, offs_m, key + steps, length, scale, DIAGONAL=True)
        k_ptrs += BLOCK_N * stride_kn
        v_ptrs += BLOCK_N * stride_vn

    out_tile = out_ptr + batch * stride_ob + head * stride_oh + first * stride_om
    result = (acc / d[:, None]).to(out_ptr.dtype.element_ty)
    tl.store(out_tile + rows[:, None] * stride_om + dims[None, :], result, mask=mine)


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v for each head, where a query sees its own key and those before it."""
    batch, heads, length, dim = q.shape
    if out is None:
        out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    scale = math.log2(math.e) / math.sqrt(dim)
    grid = lambda meta: (batch * heads * triton.cdiv(length, meta["BLOCK_M"]),)
    attention_kernel[grid](
        q, k, v, out, heads, length, scale,
        *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *out.stride()[:3],
        DIM=dim,
    )  # fmt: skip
    return out
