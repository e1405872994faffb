# gpu-programming/triton-kernels/attention.py | error | fold: `tl.sum(p, axis=1)` lacks keep_dims=True. m, d and the factor are columns (BLOCK_M, 1), so (BLOCK_M, 1) + (BLOCK_M,) broadcasts to (BLOCK_M, BLOCK_M), and d, carried by both loops, changes its shape: Triton does not compile any case (loop-carried variable d has another type than at the start). In the interpreter d becomes a square matrix, and acc / d has mismatched shapes, or wrong numbers where DIM equals BLOCK_M. Should be `tl.sum(p, axis=1, keep_dims=True)`
"""Causal attention, autotuned; the maxima and sums of the rows are kept as columns, beside acc."""

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
    _config(64, 32, 3, 4),
    _config(32, 16, 2, 2),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: tiles no longer than the sequence, and the last one alone for fp32."""
    longest = 0 if named_args["q_ptr"].dtype == torch.float32 else named_args["length"]
    return [config for config in configs if config.kwargs["BLOCK_M"] <= longest] or configs[-1:]


@triton.jit
def fold(acc, m, d, q, k_ptrs, v_ptrs, offs_m, keys, length, scale, DIAGONAL: tl.constexpr):
    """One more block of keys in acc (BLOCK_M, DIM), and in m and d (BLOCK_M, 1)."""
    if DIAGONAL:
        k = tl.load(k_ptrs, mask=keys[:, None] < length, other=0.0)
        v = tl.load(v_ptrs, mask=keys[:, None] < length, other=0.0)
    else:
        k = tl.load(k_ptrs)
        v = tl.load(v_ptrs)
    scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
    if DIAGONAL:
        scores = tl.where(keys[None, :] <= offs_m[:, None], scores, float("-inf"))
    m_new = tl.maximum(m, tl.max(scores, axis=1, keep_dims=True))
    factor = tl.exp2(m - m_new)
    p = tl.exp2(scores - m_new)
    d = d * factor + tl.sum(p, axis=1)
    acc = tl.dot(p.to(v.dtype), v, acc * factor, input_precision="ieee")
    return acc, m_new, d


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, heads, length, scale,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_om,
    DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """out[i, :] = sum over j <= i of softmax(q k^T)[i, j] v[j, :]; a program owns BLOCK_M rows of one head.

    q, k, v and out are (batch, heads, length, DIM), of one dtype, the last dimension contiguous, any strides
    before it. scale is log2(e) / sqrt(DIM).
    """
    tiles = tl.cdiv(length, BLOCK_M)
    tile = tiles - 1 - tl.program_id(axis=0) % tiles
    which = (tl.program_id(axis=0) // tiles).to(tl.int64)
    batch, head = which // heads, which % heads
    start_m = tile * BLOCK_M
    offs_m = start_m + tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    dims = tl.arange(0, DIM)
    q_ptrs = q_ptr + batch * stride_qb + head * stride_qh + offs_m[:, None] * stride_qm + dims[None, :]
    o_ptrs = out_ptr + batch * stride_ob + head * stride_oh + offs_m[:, None] * stride_om + dims[None, :]
    k_ptrs = k_ptr + batch * stride_kb + head * stride_kh + offs_n[:, None] * stride_kn + dims[None, :]
    v_ptrs = v_ptr + batch * stride_vb + head * stride_vh + offs_n[:, None] * stride_vn + dims[None, :]
    q = tl.load(q_ptrs, mask=offs_m[:, None] < length, other=0.0)

    m = tl.full((BLOCK_M, 1), -float("inf"), dtype=tl.float32)
    d = tl.zeros((BLOCK_M, 1), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)
    for start_n in range(0, start_m, BLOCK_N):
        acc, m, d = fold(acc, m, d, q, k_ptrs, v_ptrs, offs_m, start_n + offs_n, length, scale, DIAGONAL=False)
        k_ptrs += BLOCK_N * stride_kn
        v_ptrs += BLOCK_N * stride_vn
    for start_n in tl.range(start_m, tl.minimum(start_m + BLOCK_M, length), BLOCK_N, num_stages=1):
        acc, m, d = fold(acc, m, d, q, k_ptrs, v_ptrs, offs_m, start_n + offs_n, length, scale, DIAGONAL=True)
        k_ptrs += BLOCK_N * stride_kn
        v_ptrs += BLOCK_N * stride_vn

    tl.store(o_ptrs, (acc / d).to(out_ptr.dtype.element_ty), mask=offs_m[:, None] < length)


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v for each head, where a query sees its own key and those before it."""
    out = torch.empty_like(q, memory_format=torch.contiguous_format) if out is None else out
    batch, heads, length, dim = q.shape

    def grid(meta):
        return (triton.cdiv(length, meta["BLOCK_M"]) * heads * batch,)

    attention_kernel[grid](
        q, k, v, out, heads, length, math.log2(math.e) / math.sqrt(dim),
        *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *out.stride()[:3],
        DIM=dim,
    )  # fmt: skip
    return out
