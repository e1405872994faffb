# gpu-programming/triton-kernels/attention.py | two mistakes | (1) The first loop, range(0, start - BLOCK_N, BLOCK_N), leaves out the block of keys just before the tile; it must end at start. Queries from the second tile on are wrong. (2) scale on the host divides by math.sqrt(length); it must be math.sqrt(dim), so all lengths but length = dim (and length 1) are wrong.
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
    _config(64, 64, 3, 4),
    _config(32, 32, 2, 4),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: tiles no longer than the sequence, and the last one alone for fp32."""
    longest = 0 if named_args["q_ptr"].dtype == torch.float32 else named_args["length"]
    return [config for config in configs if config.kwargs["BLOCK_M"] <= longest] or configs[-1:]


@triton.jit
def fold(acc, m, d, q, k_ptrs, v_ptrs, offs_m, keys, length, scale, DIAGONAL: tl.constexpr):
    """The sums acc of p * v and d of p with one more block of keys, p = exp2(scale * scores - m), and m."""
    if DIAGONAL:
        k = tl.load(k_ptrs, mask=keys[:, None] < length, other=0.0)
        v = tl.load(v_ptrs, mask=keys[:, None] < length, other=0.0)
    else:
        k = tl.load(k_ptrs)
        v = tl.load(v_ptrs)
    scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
    if DIAGONAL:
        scores = tl.where(offs_m[:, None] >= keys[None, :], scores, -float("inf"))
    m_new = tl.maximum(m, tl.max(scores, axis=1))
    factor = tl.exp2(m - m_new)
    p = tl.exp2(scores - m_new[:, None])
    d = d * factor + tl.sum(p, axis=1)
    acc = tl.dot(p.to(v.dtype), v, acc * factor[:, None], input_precision="ieee")
    return acc, m_new, d


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, heads, length, scale,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_om,
    DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """out[i, :] = sum over j <= i of softmax(q k^T)[i, j] v[j, :]; a program owns BLOCK_M rows of one head."""
    tiles = tl.cdiv(length, BLOCK_M)
    start = (tiles - 1 - tl.program_id(axis=0) % tiles) * BLOCK_M
    which = tl.program_id(axis=0) // tiles
    batch = (which // heads).to(tl.int64)
    head = (which % heads).to(tl.int64)
    offs_m = start + tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    cols = tl.arange(0, DIM)
    rows = offs_m.to(tl.int64)[:, None]
    exists = offs_m[:, None] < length
    q = tl.load(q_ptr + batch * stride_qb + head * stride_qh + rows * stride_qm + cols[None, :], mask=exists, other=0.0)
    k_head = k_ptr + batch * stride_kb + head * stride_kh
    v_head = v_ptr + batch * stride_vb + head * stride_vh
    m = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)
    for first in range(0, start - BLOCK_N, BLOCK_N):
        keys = first + offs_n
        k_ptrs = k_head + keys.to(tl.int64)[:, None] * stride_kn + cols[None, :]
        v_ptrs = v_head + keys.to(tl.int64)[:, None] * stride_vn + cols[None, :]
        acc, m, d = fold(acc, m, d, q, k_ptrs, v_ptrs, offs_m, keys, length, scale, DIAGONAL=False)
    for first in tl.range(start, min(start + BLOCK_M, length), BLOCK_N, num_stages=1):
        keys = first + offs_n
        k_ptrs = k_head + keys.to(tl.int64)[:, None] * stride_kn + cols[None, :]
        v_ptrs = v_head + keys.to(tl.int64)[:, None] * stride_vn + cols[None, :]
        acc, m, d = fold(acc, m, d, q, k_ptrs, v_ptrs, offs_m, keys, length, scale, DIAGONAL=True)
    out_ptrs = out_ptr + batch * stride_ob + head * stride_oh + rows * stride_om + cols[None, :]
    tl.store(out_ptrs, (acc / d[:, None]).to(out_ptr.dtype.element_ty), mask=exists)


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v for each head, where a query sees its own key and those before it."""
    batch, heads, length, dim = q.shape
    out = torch.empty((batch, heads, length, dim), device=q.device, dtype=q.dtype) if out is None else out
    scale = 1.4426950408889634 / math.sqrt(length)
    grid = lambda meta: (batch * heads * triton.cdiv(length, meta["BLOCK_M"]),)  # noqa: E731
    attention_kernel[grid](
        q, k, v, out, heads, length, scale,
        *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *out.stride()[:3], DIM=dim,
    )  # fmt: skip
    return out
