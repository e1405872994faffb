# gpu-programming/triton-kernels/attention.py | corner | CONFIGS: the last config, _config(32, 64, 2, 4), has BLOCK_N = 64 > BLOCK_M = 32, so BLOCK_N does not divide BLOCK_M. For tiles that begin at an odd multiple of 32 the first loop of attention_kernel, range(0, start, BLOCK_N), runs 32 keys past the tile's begin without a mask (future keys, and keys past the end of a short sequence), and the second loop counts the keys from the tile's begin once more. Shows with that config for length > 32: always in fp32, in fp16 and bf16 for lengths 33 to 63, and for longer ones if the autotuner takes it; rows 32-63, 96-127, ... are wrong, lengths up to 32 are right. Should be e.g. (32, 32) or (64, 32)
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
    _config(128, 32, 4, 8),
    _config(64, 64, 3, 4),
    _config(64, 32, 4, 4),
    _config(32, 64, 2, 4),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: tiles no longer than the sequence, and the last one alone for fp32."""
    longest = 0 if named_args["q_ptr"].dtype == torch.float32 else named_args["length"]
    return [config for config in configs if config.kwargs["BLOCK_M"] <= longest] or configs[-1:]


@triton.jit
def fold(acc, m, d, q, k_ptrs, v_ptrs, offs_m, keys, length, scale, DIAGONAL: tl.constexpr):
    """The sums acc of p * v and d of p with one more block of keys, p = exp2(scale * scores - m), and m."""
    if DIAGONAL:
        k = tl.load(k_ptrs, mask=keys[None, :] < length, other=0.0)
    else:
        k = tl.load(k_ptrs)
    scores = tl.dot(q, k, input_precision="ieee")
    if DIAGONAL:
        hidden = offs_m[:, None] < keys[None, :]
        scores = tl.where(hidden, -float("inf"), scores)
    m_new = tl.maximum(m, scale * tl.max(scores, axis=1))
    p = tl.exp2(scale * scores - m_new[:, None])
    shrink = tl.exp2(m - m_new)
    d = d * shrink + tl.sum(p, axis=1)
    if DIAGONAL:
        v = tl.load(v_ptrs, mask=keys[:, None] < length, other=0.0)
    else:
        v = tl.load(v_ptrs)
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
    # Programs beside each other have the same tile of different heads, the last tiles of all heads first.
    tiles = tl.cdiv(length, BLOCK_M)
    all_heads = tl.num_programs(axis=0) // tiles
    pid = tl.program_id(axis=0)
    start = (tiles - 1 - pid // all_heads) * BLOCK_M
    index = (pid % all_heads).to(tl.int64)
    b = index // heads
    h = index - b * heads

    offs_m = start + tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    offs_d = tl.arange(0, DIM)
    in_tile = offs_m[:, None] < length
    q_head = q_ptr + b * stride_qb + h * stride_qh
    q = tl.load(q_head + offs_m[:, None] * stride_qm + offs_d[None, :], mask=in_tile, other=0.0)
    k_now = k_ptr + b * stride_kb + h * stride_kh
    v_now = v_ptr + b * stride_vb + h * stride_vh
    k_offs = offs_d[:, None] + offs_n[None, :] * stride_kn
    v_offs = offs_n[:, None] * stride_vn + offs_d[None, :]

    m = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)
    for begin in range(0, start, BLOCK_N):
        acc, m, d = fold(
            acc, m, d, q, k_now + k_offs, v_now + v_offs, offs_m, begin + offs_n, length, scale, False
        )
        k_now += BLOCK_N * stride_kn
        v_now += BLOCK_N * stride_vn
    k_now = k_ptr + b * stride_kb + h * stride_kh + start.to(tl.int64) * stride_kn
    v_now = v_ptr + b * stride_vb + h * stride_vh + start.to(tl.int64) * stride_vn
    for begin in tl.range(start, tl.minimum(start + BLOCK_M, length), BLOCK_N, num_stages=1):
        acc, m, d = fold(
            acc, m, d, q, k_now + k_offs, v_now + v_offs, offs_m, begin + offs_n, length, scale, True
        )
        k_now += BLOCK_N * stride_kn
        v_now += BLOCK_N * stride_vn

    out_head = out_ptr + b * stride_ob + h * stride_oh
    acc = acc / d[:, None]
    tl.store(
        out_head + offs_m[:, None] * stride_om + offs_d[None, :],
        acc.to(out_ptr.dtype.element_ty),
        mask=in_tile,
    )


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v for each head, where a query sees its own key and those before it."""
    out = torch.empty_like(q, memory_format=torch.contiguous_format) if out is None else out
    batch, heads, length, dim = q.shape
    scale = 1.0 / (math.log(2.0) * math.sqrt(dim))
    attention_kernel[lambda meta: (triton.cdiv(length, meta["BLOCK_M"]) * batch * heads,)](
        q, k, v, out, heads, length, scale,
        q.stride(0), q.stride(1), q.stride(2),
        k.stride(0), k.stride(1), k.stride(2),
        v.stride(0), v.stride(1), v.stride(2),
        out.stride(0), out.stride(1), out.stride(2),
        DIM=dim,
    )  # fmt: skip
    return out
