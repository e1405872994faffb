# gpu-programming/triton-kernels/attention.py | wrong everywhere | the scale holds log2(e), as for exp2 (`scale = 1.44269504 / math.sqrt(dim)`), but the kernel calls tl.exp in fold; must be tl.exp2, or a scale without log2(e). The weights are too sharp for every query but the first, which sees one key only.
"""Causal attention without the matrix of scores: online softmax over blocks of keys, autotuned."""

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
    """The configs worth a try: tiles no longer than the sequence, and the last one alone for fp32."""
    longest = 0 if named_args["q_ptr"].dtype == torch.float32 else named_args["length"]
    return [config for config in configs if config.kwargs["BLOCK_M"] <= longest] or configs[-1:]


@triton.jit
def fold(acc, m, d, q, k_ptrs, v_ptrs, offs_m, keys, length, scale, DIAGONAL: tl.constexpr):
    if DIAGONAL:
        k = tl.load(k_ptrs, mask=keys[None, :] < length, other=0.0)
        v = tl.load(v_ptrs, mask=keys[:, None] < length, other=0.0)
    else:
        k = tl.load(k_ptrs)
        v = tl.load(v_ptrs)
    scores = tl.dot(q, k, input_precision="ieee") * scale
    if DIAGONAL:
        scores = tl.where(offs_m[:, None] >= keys[None, :], scores, -float("inf"))
    m_new = tl.maximum(m, tl.max(scores, axis=1))
    p = tl.exp(scores - m_new[:, None])
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
    tiles = tl.cdiv(length, BLOCK_M)
    pid = tl.program_id(axis=0)
    first = (tiles - 1 - pid % tiles) * BLOCK_M
    batch = (pid // tiles // heads).to(tl.int64)
    head = (pid // tiles % heads).to(tl.int64)
    offs_m = first + tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    dims = tl.arange(0, DIM)
    rows = offs_m.to(tl.int64)[:, None]
    keys = offs_n.to(tl.int64)
    q_ptrs = q_ptr + batch * stride_qb + head * stride_qh + rows * stride_qm + dims[None, :]
    q = tl.load(q_ptrs, mask=offs_m[:, None] < length, other=0.0)
    k_ptrs = k_ptr + batch * stride_kb + head * stride_kh + keys[None, :] * stride_kn + dims[:, None]
    v_ptrs = v_ptr + batch * stride_vb + head * stride_vh + keys[:, None] * stride_vn + dims[None, :]
    m = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)
    for start in range(0, first, BLOCK_N):
        acc, m, d = fold(acc, m, d, q, k_ptrs, v_ptrs, offs_m, start + offs_n, length, scale, False)
        k_ptrs += BLOCK_N * stride_kn
        v_ptrs += BLOCK_N * stride_vn
    for start in tl.range(first, tl.minimum(first + BLOCK_M, length), BLOCK_N, num_stages=1):
        acc, m, d = fold(acc, m, d, q, k_ptrs, v_ptrs, offs_m, start + offs_n, length, scale, True)
        k_ptrs += BLOCK_N * stride_kn
        v_ptrs += BLOCK_N * stride_vn
    result = acc / d[:, None]
    out_ptrs = out_ptr + batch * stride_ob + head * stride_oh + rows * stride_om + dims[None, :]
    tl.store(out_ptrs, result.to(out_ptr.dtype.element_ty), mask=offs_m[:, None] < length)


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    out = torch.empty_like(q, memory_format=torch.contiguous_format) if out is None else out
    batch, heads, length, dim = q.shape
    scale = 1.44269504 / math.sqrt(dim)
    grid = lambda meta: (triton.cdiv(length, meta["BLOCK_M"]) * batch * heads,)
    attention_kernel[grid](
        q, k, v, out, heads, length, scale,
        *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *out.stride()[:3], DIM=dim,
    )  # fmt: skip
    return out
