# gpu-programming/triton-kernels/attention.py | two mistakes | (1) In `attention_kernel`, `v_offsets = lanes[:, None] * stride_kn + dims[None, :]` takes the position stride of k for v; it should be `stride_vn`. It shows only where v has another position stride than k (padded heads, or one of the two with heads side by side), also in short sequences of one block. (2) In `fold`, `factor = tl.exp2(m - m_new)` lacks the scale, because m is kept unscaled here; it should be `tl.exp2((m - m_new) * scale)`. It shows in all layouts for sequences that are longer than one block of keys, where a later block raises the maximum of a row (acc and d of the earlier blocks count too little).
"""Causal attention by blocks of keys: those at the diagonal first, then all that lie before the tile."""

import math

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, num_stages, num_warps):
    """One candidate: queries of a program and keys of a step, pipeline depth and warps."""
    return triton.Config({"BLOCK_M": block_m, "BLOCK_N": block_n}, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 64, 3, 8),
    _config(128, 64, 2, 8),
    _config(64, 64, 3, 4),
    _config(64, 32, 3, 4),
    _config(32, 32, 2, 4),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: tiles no longer than the sequence, and the last one alone for fp32."""
    longest = 0 if named_args["q_ptr"].dtype == torch.float32 else named_args["length"]
    return [config for config in configs if config.kwargs["BLOCK_M"] <= longest] or configs[-1:]


@triton.jit
def fold(acc, m, d, q, k_ptrs, v_ptrs, queries, keys, length, scale, DIAGONAL: tl.constexpr):
    """acc, m and d with one more block of keys; m is the largest score, before it is scaled.

    The difference to m is taken first: of scores far from 0 it keeps all digits.
    """
    if DIAGONAL:
        exists = keys < length
        k = tl.load(k_ptrs, mask=exists[None, :], other=0.0)
        v = tl.load(v_ptrs, mask=exists[:, None], other=0.0)
    else:
        k = tl.load(k_ptrs)
        v = tl.load(v_ptrs)
    scores = tl.dot(q, k, input_precision="ieee")
    if DIAGONAL:
        scores = tl.where(queries[:, None] >= keys[None, :], scores, -float("inf"))
    m_new = tl.maximum(m, tl.max(scores, axis=1))
    p = tl.exp2((scores - m_new[:, None]) * scale)
    factor = tl.exp2(m - m_new)
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
    """A program owns BLOCK_M queries of one head; scale is log2(e) / sqrt(DIM).

    Every query of a tile sees the tile's first key, so m is finite after the first block.
    """
    tiles = tl.cdiv(length, BLOCK_M)
    pid = tl.program_id(axis=0)
    pair = pid // tiles
    batch, head = (pair // heads).to(tl.int64), (pair % heads).to(tl.int64)
    first = (tiles - 1 - pid % tiles) * BLOCK_M

    dims = tl.arange(0, DIM)
    lanes = tl.arange(0, BLOCK_N)
    queries = first + tl.arange(0, BLOCK_M)
    rows = queries.to(tl.int64)[:, None]
    q_head = q_ptr + batch * stride_qb + head * stride_qh
    k_head = k_ptr + batch * stride_kb + head * stride_kh
    v_head = v_ptr + batch * stride_vb + head * stride_vh
    out_head = out_ptr + batch * stride_ob + head * stride_oh

    # Keys as columns, values as rows; the pointer to the block moves, these offsets do not.
    k_offsets = dims[:, None] + lanes[None, :] * stride_kn
    v_offsets = lanes[:, None] * stride_kn + dims[None, :]

    exists = queries[:, None] < length
    q = tl.load(q_head + rows * stride_qm + dims[None, :], mask=exists, other=0.0)
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)
    m = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((BLOCK_M,), dtype=tl.float32)

    k_block = k_head + first.to(tl.int64) * stride_kn
    v_block = v_head + first.to(tl.int64) * stride_vn
    for start in tl.range(first, tl.minimum(first + BLOCK_M, length), BLOCK_N, num_stages=1):
        k_ptrs, v_ptrs = k_block + k_offsets, v_block + v_offsets
        acc, m, d = fold(acc, m, d, q, k_ptrs, v_ptrs, queries, start + lanes, length, scale, True)
        k_block += BLOCK_N * stride_kn
        v_block += BLOCK_N * stride_vn

    k_block, v_block = k_head, v_head
    for start in tl.range(0, first, BLOCK_N):
        k_ptrs, v_ptrs = k_block + k_offsets, v_block + v_offsets
        acc, m, d = fold(acc, m, d, q, k_ptrs, v_ptrs, queries, start + lanes, length, scale, False)
        k_block += BLOCK_N * stride_kn
        v_block += BLOCK_N * stride_vn

    result = (acc / d[:, None]).to(out_ptr.dtype.element_ty)
    tl.store(out_head + rows * stride_om + dims[None, :], result, mask=exists)


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v for each head, where a query sees its own key and those before it.

    q, k and v are (batch, heads, length, dim), bf16, fp16 or fp32, dim 16, 32, 64 or 128 and contiguous, any
    length from 1 on; the result goes to `out`, like q, where one is given.
    """
    batch, heads, length, dim = q.shape
    if out is None:
        out = torch.empty((batch, heads, length, dim), dtype=q.dtype, device=q.device)
    if batch * heads * length == 0:
        return out
    grid = lambda meta: (triton.cdiv(length, meta["BLOCK_M"]) * batch * heads,)  # noqa: E731
    attention_kernel[grid](
        q, k, v, out, heads, length, math.log2(math.e) / math.sqrt(dim),
        *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *out.stride()[:3],
        DIM=dim,
    )  # fmt: skip
    return out
