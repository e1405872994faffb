# gpu-programming/triton-kernels/attention.py | error | In `attention_kernel`, `m = tl.full((BLOCK_M,), -float("inf"), dtype=q.dtype)` should be `dtype=tl.float32`: `fold` returns m in fp32, and Triton rejects a loop-carried variable that changes its type ("Loop-carried variable m has initial type ... but is re-assigned ..."). Compile error for fp16 and bf16; fp32 is right (the interpreter does not notice).
"""Causal attention without the matrix of scores: online softmax over blocks of keys, autotuned."""

import math

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, num_stages, num_warps):
    """One candidate: queries of a program and keys of a step, powers of two, pipeline depth and warps."""
    return triton.Config({"BLOCK_M": block_m, "BLOCK_N": block_n}, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [_config(128, 128, 2, 8), _config(128, 64, 3, 8), _config(64, 64, 3, 4), _config(32, 32, 2, 4)]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: tiles no longer than the sequence, and the last one alone for fp32."""
    longest = 0 if named_args["q_ptr"].dtype == torch.float32 else named_args["length"]
    return [config for config in configs if config.kwargs["BLOCK_M"] <= longest] or configs[-1:]


@triton.jit
def fold(acc, m, d, q, k_ptrs, v_ptrs, offs_m, keys, length, scale, DIAGONAL: tl.constexpr):
    """The sums acc of p * v and d of p with one more block of keys, p = exp2(scale * scores - m), and m."""
    if DIAGONAL:
        k = tl.load(k_ptrs, mask=(keys < length)[:, None], other=0.0)
    else:
        k = tl.load(k_ptrs)
    scores = tl.dot(q, tl.trans(k), input_precision="ieee")
    if DIAGONAL:
        scores = tl.where(offs_m[:, None] >= keys[None, :], scores, -float("inf"))
    m_new = tl.maximum(m, scale * tl.max(scores, axis=1))
    p = tl.exp2(scale * scores - m_new[:, None])
    factor = tl.exp2(m - m_new)
    if DIAGONAL:
        v = tl.load(v_ptrs, mask=(keys < length)[:, None], other=0.0)
    else:
        v = tl.load(v_ptrs)
    acc = tl.dot(p.to(v.dtype), v, acc * factor[:, None], input_precision="ieee")
    return acc, m_new, d * factor + tl.sum(p, axis=1)


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, heads, length, scale,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_om,
    DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """out[i, :] = sum over j <= i of softmax(q k^T)[i, j] v[j, :]; a program owns BLOCK_M rows of one head.

    The tiles of a head follow each other, those with the most keys first.
    """
    tiles = tl.cdiv(length, BLOCK_M)
    number = tl.program_id(axis=0)
    which = (number // tiles).to(tl.int64)
    batch, head = which // heads, which % heads
    first = (tiles - 1 - number % tiles) * BLOCK_M
    offs_m = first + tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    dims = tl.arange(0, DIM)[None, :]
    rows = offs_m.to(tl.int64)[:, None]

    q_ptrs = q_ptr + batch * stride_qb + head * stride_qh + rows * stride_qm + dims
    out_ptrs = out_ptr + batch * stride_ob + head * stride_oh + rows * stride_om + dims
    k_base = k_ptr + batch * stride_kb + head * stride_kh
    v_base = v_ptr + batch * stride_vb + head * stride_vh
    k_offs = offs_n[:, None] * stride_kn + dims
    v_offs = offs_n[:, None] * stride_vn + dims

    q = tl.load(q_ptrs, mask=(offs_m < length)[:, None], other=0.0)
    m = tl.full((BLOCK_M,), -float("inf"), dtype=q.dtype)
    d = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)

    for start in tl.range(0, first, BLOCK_N):
        at = tl.cast(start, tl.int64)
        acc, m, d = fold(
            acc, m, d, q, k_base + at * stride_kn + k_offs, v_base + at * stride_vn + v_offs,
            offs_m, start + offs_n, length, scale, DIAGONAL=False,
        )  # fmt: skip
    for start in tl.range(first, tl.minimum(first + BLOCK_M, length), BLOCK_N, num_stages=1):
        at = tl.cast(start, tl.int64)
        acc, m, d = fold(
            acc, m, d, q, k_base + at * stride_kn + k_offs, v_base + at * stride_vn + v_offs,
            offs_m, start + offs_n, length, scale, DIAGONAL=True,
        )  # fmt: skip

    tl.store(out_ptrs, (acc / d[:, None]).to(q.dtype), mask=(offs_m < length)[:, None])


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v for each head, where a query sees its own key and those before it.

    q, k and v are (batch, heads, length, dim), bf16, fp16 or fp32, dim 16, 32, 64 or 128 and contiguous, any
    length from 1 on; the result goes to `out`, like q, where one is given. After Dao, arXiv:2307.08691.
    """
    if out is None:
        out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    batch, heads, length, dim = q.shape
    strides = [tensor.stride(axis) for tensor in (q, k, v, out) for axis in range(3)]

    def grid(meta):
        return (batch * heads * triton.cdiv(length, meta["BLOCK_M"]),)

    scale = math.log2(math.e) / math.sqrt(dim)
    attention_kernel[grid](q, k, v, out, heads, length, scale, *strides, DIM=dim)
    return out
