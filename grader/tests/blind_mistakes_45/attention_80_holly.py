# gpu-programming/triton-kernels/attention.py | wrong everywhere | In `fold`, `factor = tl.exp(m - m_new)`: m is in units of log2, as in `p = tl.exp2(...)`, so it must be `tl.exp2(m - m_new)`; acc and d of earlier blocks count too little whenever a later block raises the maximum. Shows in nearly all cases: each sequence longer than one block of keys (16 for the smallest config); right for length 1.
"""Causal attention without the matrix of scores: online softmax over blocks of keys, autotuned."""

import math

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, num_stages, num_warps):
    """One candidate: queries of a program and keys of a step, powers of two, pipeline depth and warps."""
    return triton.Config({"BLOCK_M": block_m, "BLOCK_N": block_n}, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 64, 3, 8),
    _config(128, 32, 4, 8),
    _config(64, 32, 4, 4),
    _config(32, 16, 2, 4),
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
        k = tl.load(k_ptrs, mask=keys[:, None] < length, other=0.0)
        v = tl.load(v_ptrs, mask=keys[:, None] < length, other=0.0)
    else:
        k = tl.load(k_ptrs)
        v = tl.load(v_ptrs)
    scores = tl.dot(q, k.T, input_precision="ieee")
    if DIAGONAL:
        scores = tl.where(offs_m[:, None] >= keys[None, :], scores, -float("inf"))
    m_new = tl.maximum(m, scale * tl.max(scores, axis=1))
    p = tl.exp2(scale * scores - m_new[:, None])
    factor = tl.exp(m - m_new)
    acc = tl.dot(p.to(v.dtype), v, acc * factor[:, None], input_precision="ieee")
    d = d * factor + tl.sum(p, axis=1)
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
    pid, tiles = tl.program_id(axis=0), tl.cdiv(length, BLOCK_M)
    first = (tiles - 1 - pid % tiles) * BLOCK_M
    head = pid // tiles
    b, h = (head // heads).to(tl.int64), (head % heads).to(tl.int64)
    offs_m, offs_n, offs_d = first + tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_N), tl.arange(0, DIM)
    here = offs_m[:, None] < length
    q_rows = q_ptr + b * stride_qb + h * stride_qh + offs_m.to(tl.int64)[:, None] * stride_qm
    q = tl.load(q_rows + offs_d[None, :], mask=here, other=0.0)
    k_ptr += b * stride_kb + h * stride_kh
    v_ptr += b * stride_vb + h * stride_vh
    k_offs = offs_n[:, None] * stride_kn + offs_d[None, :]
    v_offs = offs_n[:, None] * stride_vn + offs_d[None, :]
    m = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)
    for start in range(0, first, BLOCK_N):
        acc, m, d = fold(
            acc, m, d, q, k_ptr + k_offs, v_ptr + v_offs, offs_m, start + offs_n, length, scale, False
        )
        k_ptr += BLOCK_N * stride_kn
        v_ptr += BLOCK_N * stride_vn
    end = tl.minimum(first + BLOCK_M, length)
    for start in tl.range(first, end, BLOCK_N, num_stages=1):
        acc, m, d = fold(
            acc, m, d, q, k_ptr + k_offs, v_ptr + v_offs, offs_m, start + offs_n, length, scale, True
        )
        k_ptr += BLOCK_N * stride_kn
        v_ptr += BLOCK_N * stride_vn
    out_rows = out_ptr + b * stride_ob + h * stride_oh + offs_m.to(tl.int64)[:, None] * stride_om
    tl.store(out_rows + offs_d[None, :], (acc / d[:, None]).to(out_ptr.dtype.element_ty), mask=here)


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v for each head, where a query sees its own key and those before it.

    q, k and v are (batch, heads, length, dim), bf16, fp16 or fp32, dim 16, 32, 64 or 128 and contiguous, any
    length from 1 on; the result goes to `out`, like q, where one is given. After Dao, arXiv:2307.08691.
    """
    out = q.new_empty(q.shape) if out is None else out
    batch, heads, length, dim = q.shape

    def grid(meta):
        return (triton.cdiv(length, meta["BLOCK_M"]) * batch * heads,)

    attention_kernel[grid](
        q, k, v, out, heads, length, math.log2(math.e) / math.sqrt(dim),
        q.stride(0), q.stride(1), q.stride(2), k.stride(0), k.stride(1), k.stride(2),
        v.stride(0), v.stride(1), v.stride(2), out.stride(0), out.stride(1), out.stride(2), DIM=dim,
    )  # fmt: skip
    return out
