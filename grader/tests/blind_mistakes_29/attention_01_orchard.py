# gpu-programming/triton-kernels/attention.py | wrong everywhere | fold: the block of keys (BLOCK_N, DIM) is turned into (DIM, BLOCK_N) by tl.reshape(k, (DIM, BLOCK_N)), which keeps the order in memory and mixes numbers of different keys and dimensions, in place of a transposition; all scores are wrong, so every row but the first of a head (which has one key) is wrong; right only for length 1; it should be tl.trans(k)
"""Causal attention with an online softmax, autotuned."""

import math

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, num_stages, num_warps):
    return triton.Config({"BLOCK_M": block_m, "BLOCK_N": block_n}, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 128, 2, 8),
    _config(128, 64, 3, 8),
    _config(64, 64, 3, 4),
    _config(32, 32, 2, 4),
]


def fitting(configs, named_args, **kwargs):
    """Tiles no longer than the sequence; for fp32 the last one."""
    longest = 0 if named_args["q_ptr"].dtype == torch.float32 else named_args["length"]
    return [config for config in configs if config.kwargs["BLOCK_M"] <= longest] or configs[-1:]


@triton.jit
def fold(
    acc, m, d, q, k_ptrs, v_ptrs, offs_m, keys, length, scale,
    DIM: tl.constexpr, BLOCK_N: tl.constexpr, DIAGONAL: tl.constexpr,
):  # fmt: skip
    """acc, m and d with one more block of keys."""
    if DIAGONAL:
        there = (keys < length)[:, None]
        k = tl.load(k_ptrs, mask=there, other=0.0)
        v = tl.load(v_ptrs, mask=there, other=0.0)
    else:
        k = tl.load(k_ptrs)
        v = tl.load(v_ptrs)
    scores = tl.dot(q, tl.reshape(k, (DIM, BLOCK_N)), input_precision="ieee")
    if DIAGONAL:
        scores = tl.where(offs_m[:, None] >= keys[None, :], scores, -float("inf"))
    m_new = tl.maximum(m, scale * tl.max(scores, axis=1))
    p = tl.exp2(scale * scores - m_new[:, None])
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
    pid = tl.program_id(axis=0)
    tiles = tl.cdiv(length, BLOCK_M)
    pairs = tl.num_programs(axis=0) // tiles
    # All heads' longest tiles come first.
    first = (tiles - 1 - pid // pairs) * BLOCK_M
    pair = (pid % pairs).to(tl.int64)
    b, h = pair // heads, pair % heads

    offs_m = first + tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    offs_d = tl.arange(0, DIM)
    rows = offs_m.to(tl.int64)[:, None]
    in_sequence = (offs_m < length)[:, None]

    q_ptrs = q_ptr + b * stride_qb + h * stride_qh + rows * stride_qm + offs_d[None, :]
    q = tl.load(q_ptrs, mask=in_sequence, other=0.0)
    k_ptrs = k_ptr + b * stride_kb + h * stride_kh + offs_n[:, None] * stride_kn + offs_d[None, :]
    v_ptrs = v_ptr + b * stride_vb + h * stride_vh + offs_n[:, None] * stride_vn + offs_d[None, :]

    m = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)
    for start in range(0, first, BLOCK_N):
        acc, m, d = fold(acc, m, d, q, k_ptrs, v_ptrs, offs_m, start + offs_n, length, scale, DIM, BLOCK_N, False)
        k_ptrs += BLOCK_N * stride_kn
        v_ptrs += BLOCK_N * stride_vn
    for start in tl.range(first, tl.minimum(first + BLOCK_M, length), BLOCK_N, num_stages=1):
        acc, m, d = fold(acc, m, d, q, k_ptrs, v_ptrs, offs_m, start + offs_n, length, scale, DIM, BLOCK_N, True)
        k_ptrs += BLOCK_N * stride_kn
        v_ptrs += BLOCK_N * stride_vn

    out_ptrs = out_ptr + b * stride_ob + h * stride_oh + rows * stride_om + offs_d[None, :]
    tl.store(out_ptrs, (acc / d[:, None]).to(out_ptr.dtype.element_ty), mask=in_sequence)


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v for each head, causal."""
    batch, heads, length, dim = q.shape
    if out is None:
        out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    strides = [tensor.stride(axis) for tensor in (q, k, v, out) for axis in (0, 1, 2)]
    scale = math.log2(math.e) / math.sqrt(dim)
    attention_kernel[lambda meta: (batch * heads * triton.cdiv(length, meta["BLOCK_M"]),)](
        q, k, v, out, heads, length, scale, *strides, DIM=dim
    )
    return out
