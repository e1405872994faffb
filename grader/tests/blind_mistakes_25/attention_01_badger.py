# gpu-programming/triton-kernels/attention.py | corner | fold: m_new is the maximum of all scores of a block at the diagonal, hidden keys and the zeros past the end included, and only p is set to 0 there. Where a hidden score is far above all scores that a query sees (large scores, most of all in fp16), p of the seen keys underflows and the row is inaccurate or 0; hidden scores should be -inf before tl.max.
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
    """The sums acc of p * v and d of p with one more block of keys, p = exp2(scale * scores - m), and m."""
    if DIAGONAL:
        exists = keys < length
        k = tl.load(k_ptrs, mask=exists[None, :], other=0.0)
        v = tl.load(v_ptrs, mask=exists[:, None], other=0.0)
    else:
        k = tl.load(k_ptrs)
        v = tl.load(v_ptrs)
    scores = tl.dot(q, k, input_precision="ieee") * scale
    m_new = tl.maximum(m, tl.max(scores, axis=1))
    p = tl.exp2(scores - m_new[:, None])
    if DIAGONAL:
        p = tl.where(offs_m[:, None] >= keys[None, :], p, 0.0)
    shrink = tl.exp2(m - m_new)
    d = d * shrink + tl.sum(p, axis=1)
    acc = tl.dot(p.to(v.dtype), v, acc * shrink[:, None], input_precision="ieee")
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
    # Program 0 and its neighbours have the last tile of each head, the longest one.
    pid = tl.program_id(axis=0)
    tiles = tl.cdiv(length, BLOCK_M)
    pairs = tl.num_programs(axis=0) // tiles
    first = (tiles - 1 - pid // pairs) * BLOCK_M
    pair = pid % pairs
    batch = (pair // heads).to(tl.int64)
    head = (pair % heads).to(tl.int64)

    offs_m = first + tl.arange(0, BLOCK_M)
    lanes = tl.arange(0, BLOCK_N)
    dims = tl.arange(0, DIM)
    rows = offs_m.to(tl.int64)[:, None]
    here = offs_m[:, None] < length
    q = tl.load(
        q_ptr + batch * stride_qb + head * stride_qh + rows * stride_qm + dims[None, :], mask=here, other=0.0
    )
    # One pointer each that moves from block to block, and offsets inside a block that stay.
    k_base = k_ptr + batch * stride_kb + head * stride_kh
    v_base = v_ptr + batch * stride_vb + head * stride_vh
    k_offs = lanes.to(tl.int64)[None, :] * stride_kn + dims[:, None]
    v_offs = lanes.to(tl.int64)[:, None] * stride_vn + dims[None, :]
    k_hop = tl.cast(stride_kn, tl.int64) * BLOCK_N
    v_hop = tl.cast(stride_vn, tl.int64) * BLOCK_N

    m = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)
    for start in range(0, first, BLOCK_N):
        acc, m, d = fold(
            acc, m, d, q, k_base + k_offs, v_base + v_offs, offs_m, start + lanes, length, scale, DIAGONAL=False
        )
        k_base += k_hop
        v_base += v_hop
    for start in tl.range(first, tl.minimum(first + BLOCK_M, length), BLOCK_N, num_stages=1):
        acc, m, d = fold(
            acc, m, d, q, k_base + k_offs, v_base + v_offs, offs_m, start + lanes, length, scale, DIAGONAL=True
        )
        k_base += k_hop
        v_base += v_hop

    d = tl.where(d > 0.0, d, 1.0)
    result = (acc / d[:, None]).to(out_ptr.dtype.element_ty)
    tl.store(out_ptr + batch * stride_ob + head * stride_oh + rows * stride_om + dims[None, :], result, mask=here)


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v for each head, where a query sees its own key and those before it.

    q, k and v are (batch, heads, length, dim), bf16, fp16 or fp32, dim 16, 32, 64 or 128 and contiguous, any
    length from 1 on; the result goes to `out`, like q, where one is given. After Dao, arXiv:2307.08691.
    """
    batch, heads, length, dim = q.shape
    if out is None:
        out = torch.empty((batch, heads, length, dim), device=q.device, dtype=q.dtype)
    grid = lambda meta: (batch * heads * triton.cdiv(length, meta["BLOCK_M"]),)  # noqa: E731
    attention_kernel[grid](
        q, k, v, out, heads, length, math.log2(math.e) / math.sqrt(dim),
        q.stride(0), q.stride(1), q.stride(2), k.stride(0), k.stride(1), k.stride(2),
        v.stride(0), v.stride(1), v.stride(2), out.stride(0), out.stride(1), out.stride(2),
        DIM=dim,
    )  # fmt: skip
    return out
