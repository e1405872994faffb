# gpu-programming/triton-kernels/attention.py | corner | In attention_kernel the loop without a mask runs from 0 to start in steps of BLOCK_N, which relies on BLOCK_N dividing BLOCK_M; the configs (64, 128) and (32, 64) do not: keys of the diagonal are then folded in unmasked, and twice. It should end at start // BLOCK_N * BLOCK_N, and the second loop begin there.
"""Causal attention with online softmax."""

import math

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, num_stages, num_warps):
    return triton.Config({"BLOCK_M": block_m, "BLOCK_N": block_n}, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 128, 2, 8),
    _config(128, 64, 3, 8),
    _config(64, 128, 2, 8),
    _config(64, 64, 3, 4),
    _config(32, 64, 3, 4),
    _config(32, 32, 2, 4),
]


def fitting(configs, named_args, **kwargs):
    if named_args["q_ptr"].dtype == torch.float32:
        return configs[-2:]
    return [config for config in configs if config.kwargs["BLOCK_M"] <= named_args["length"]] or configs[-1:]


@triton.jit
def fold(acc, m, d, q, k_ptrs, v_ptrs, offs_m, keys, length, scale, DIAGONAL: tl.constexpr):
    """One more block of keys."""
    if DIAGONAL:
        k = tl.load(k_ptrs, mask=keys[None, :] < length, other=0.0)
        v = tl.load(v_ptrs, mask=keys[:, None] < length, other=0.0)
    else:
        k = tl.load(k_ptrs)
        v = tl.load(v_ptrs)
    scores = tl.dot(q, k, input_precision="ieee")
    if DIAGONAL:
        scores = tl.where(offs_m[:, None] >= keys[None, :], scores, -float("inf"))
    m_new = tl.maximum(m, scale * tl.max(scores, axis=1))
    p = tl.exp2(scale * scores - m_new[:, None])
    factor = tl.exp2(m - m_new)
    d = d * factor + tl.sum(p, axis=1)
    acc = acc * factor[:, None]
    acc = tl.dot(p.to(v.dtype), v, acc, input_precision="ieee")
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
    pid = tl.program_id(0)
    start = (tiles - 1 - pid % tiles) * BLOCK_M
    pair = pid // tiles
    b = (pair // heads).to(tl.int64)
    h = (pair % heads).to(tl.int64)
    offs_m = start + tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    offs_d = tl.arange(0, DIM)
    rows = offs_m.to(tl.int64)[:, None]
    n64 = offs_n.to(tl.int64)
    q = tl.load(
        q_ptr + b * stride_qb + h * stride_qh + rows * stride_qm + offs_d[None, :],
        mask=offs_m[:, None] < length,
        other=0.0,
    )
    k_ptrs = k_ptr + b * stride_kb + h * stride_kh + n64[None, :] * stride_kn + offs_d[:, None]
    v_ptrs = v_ptr + b * stride_vb + h * stride_vh + n64[:, None] * stride_vn + offs_d[None, :]

    m = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)
    for n in range(0, start, BLOCK_N):
        far = tl.full((), 1, tl.int64) * n
        acc, m, d = fold(
            acc, m, d, q, k_ptrs + far * stride_kn, v_ptrs + far * stride_vn, offs_m, n + offs_n, length, scale, False
        )
    for n in tl.range(start, tl.minimum(start + BLOCK_M, length), BLOCK_N, num_stages=1):
        far = tl.full((), 1, tl.int64) * n
        acc, m, d = fold(
            acc, m, d, q, k_ptrs + far * stride_kn, v_ptrs + far * stride_vn, offs_m, n + offs_n, length, scale, True
        )
    result = acc / d[:, None]
    out_ptrs = out_ptr + b * stride_ob + h * stride_oh + rows * stride_om + offs_d[None, :]
    tl.store(out_ptrs, result.to(out_ptr.dtype.element_ty), mask=offs_m[:, None] < length)


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    batch, heads, length, dim = q.shape
    if out is None:
        out = torch.empty(q.shape, device=q.device, dtype=q.dtype)
    scale = 1.4426950408889634 / math.sqrt(dim)
    grid = lambda meta: (triton.cdiv(length, meta["BLOCK_M"]) * batch * heads,)  # noqa: E731
    attention_kernel[grid](
        q, k, v, out, heads, length, scale,
        *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *out.stride()[:3],
        DIM=dim,
    )  # fmt: skip
    return out
