# gpu-programming/triton-kernels/attention.py | corner | In fold the running maximum is that of the unscaled scores, m_new = maximum(m, max(scores)), but p = exp2(scores * scale - m_new) subtracts it from the scaled ones, so p of the largest score is not 1 but 2^(-(1 - scale) * max). The quotient is right as long as nothing leaves the range: in fp32 for ordinary values. Wrong: fp16, mostly of dim 64 and 128 (p rounded to fp16 loses digits, becomes 0 or inf), and large scores in any dtype (d is 0 or inf, so NaN). It should be tl.maximum(m, scale * tl.max(scores, axis=1)).
"""Causal attention without the matrix of scores: online softmax over blocks of keys, autotuned."""

import math

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, num_stages, num_warps):
    """One candidate: queries of a program and keys of a step, powers of two, pipeline depth and warps."""
    return triton.Config({"BLOCK_M": block_m, "BLOCK_N": block_n}, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(*shape)
    for shape in ((128, 128, 2, 8), (128, 64, 3, 8), (64, 64, 3, 4), (64, 32, 3, 4), (32, 32, 2, 4))
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: tiles no longer than the sequence, and the last one alone for fp32."""
    longest = 0 if named_args["q_ptr"].dtype == torch.float32 else named_args["length"]
    return [config for config in configs if config.kwargs["BLOCK_M"] <= longest] or configs[-1:]


@triton.jit
def fold(acc, m, d, q, kt_ptrs, v_ptrs, offs_m, keys, length, scale, DIAGONAL: tl.constexpr):
    """One more block of keys, which come as columns: kt is (DIM, BLOCK_N)."""
    if DIAGONAL:
        kt = tl.load(kt_ptrs, mask=keys[None, :] < length, other=0.0)
    else:
        kt = tl.load(kt_ptrs)
    scores = tl.dot(q, kt, input_precision="ieee")
    if DIAGONAL:
        scores = tl.where(keys[None, :] <= offs_m[:, None], scores, float("-inf"))

    m_new = tl.maximum(m, tl.max(scores, axis=1))
    p = tl.exp2(scores * scale - m_new[:, None])
    shrink = tl.exp2(m - m_new)

    if DIAGONAL:
        v = tl.load(v_ptrs, mask=keys[:, None] < length, other=0.0)
    else:
        v = tl.load(v_ptrs)
    acc = tl.dot(p.to(v.dtype), v, acc * shrink[:, None], input_precision="ieee")
    return acc, m_new, d * shrink + tl.sum(p, axis=1)


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, heads, length, scale,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_om,
    DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """The tiles of a head are neighbours in the grid, the last queries first."""
    tiles = tl.cdiv(length, BLOCK_M)
    start_m = (tiles - 1 - tl.program_id(0) % tiles) * BLOCK_M
    sequence = tl.program_id(0) // tiles
    head = (sequence % heads).to(tl.int64)
    batch = (sequence // heads).to(tl.int64)
    q_ptr += batch * stride_qb + head * stride_qh
    k_ptr += batch * stride_kb + head * stride_kh
    v_ptr += batch * stride_vb + head * stride_vh
    out_ptr += batch * stride_ob + head * stride_oh

    offs_m = start_m + tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    dims = tl.arange(0, DIM)
    real = offs_m[:, None] < length
    rows = offs_m.to(tl.int64)[:, None]
    q = tl.load(q_ptr + rows * stride_qm + dims[None, :], mask=real, other=0.0)
    kt_ptrs = k_ptr + dims[:, None] + offs_n[None, :] * stride_kn
    v_ptrs = v_ptr + offs_n[:, None] * stride_vn + dims[None, :]

    m = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)
    for n in range(0, start_m, BLOCK_N):
        acc, m, d = fold(acc, m, d, q, kt_ptrs, v_ptrs, offs_m, n + offs_n, length, scale, False)
        kt_ptrs += BLOCK_N * stride_kn
        v_ptrs += BLOCK_N * stride_vn
    for n in tl.range(start_m, tl.minimum(start_m + BLOCK_M, length), BLOCK_N, num_stages=1):
        acc, m, d = fold(acc, m, d, q, kt_ptrs, v_ptrs, offs_m, n + offs_n, length, scale, True)
        kt_ptrs += BLOCK_N * stride_kn
        v_ptrs += BLOCK_N * stride_vn

    tl.store(out_ptr + rows * stride_om + dims[None, :], acc / d[:, None], mask=real)


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v for each head, where a query sees its own key and those before it."""
    batch, heads, length, dim = q.shape
    out = q.new_empty(q.shape) if out is None else out

    def grid(meta):
        return (triton.cdiv(length, meta["BLOCK_M"]) * heads * batch,)

    attention_kernel[grid](
        q, k, v, out, heads, length, math.log2(math.e) / math.sqrt(dim),
        *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *out.stride()[:3],
        DIM=dim,
    )  # fmt: skip
    return out
