# gpu-programming/triton-kernels/attention.py | two mistakes | (1) `HIDDEN = tl.constexpr(-1.0e4)` in `fold` should be -inf: where the scaled scores of a query are below -10000, hidden keys get all the weight. (2) In `attention_kernel`, `tile = step[:, None] * stride_kn + offs_d[None, :]` is used for `v_at + tile`, too; v needs a block of offsets of its own with `stride_vn`. Shows where k and v have different strides along the sequence (padded differently, or only one of them with swapped heads).
"""Causal attention by blocks of keys with an online softmax; k and v are loaded as they lie in memory."""

import math

import torch
import triton
import triton.language as tl

LOG2E = 1.4426950408889634
HIDDEN = tl.constexpr(-1.0e4)  # the score of a key that a query does not see: its exp2 is 0

CONFIGS = [
    triton.Config({"BLOCK_M": 128, "BLOCK_N": 64}, num_stages=3, num_warps=8),
    triton.Config({"BLOCK_M": 128, "BLOCK_N": 32}, num_stages=3, num_warps=8),
    triton.Config({"BLOCK_M": 64, "BLOCK_N": 64}, num_stages=3, num_warps=4),
    triton.Config({"BLOCK_M": 64, "BLOCK_N": 32}, num_stages=3, num_warps=4),
    triton.Config({"BLOCK_M": 32, "BLOCK_N": 32}, num_stages=2, num_warps=4),  # short sequences, and fp32
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: tiles no longer than the sequence, and the last one alone for fp32."""
    if named_args["q_ptr"].dtype == torch.float32:
        return configs[-1:]
    return [config for config in configs if config.kwargs["BLOCK_M"] <= named_args["length"]] or configs[-1:]


@triton.jit
def head_of(ptr, b, h, stride_b, stride_h):
    """Where head h of sequence b begins."""
    return ptr + b.to(tl.int64) * stride_b + h.to(tl.int64) * stride_h


@triton.jit
def fold(acc, m, d, q, k, v, offs_m, offs_n, scale, DIAGONAL: tl.constexpr):
    """One more block of keys in acc, m and d: p = exp2(scale * q @ k.T - m)."""
    scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
    if DIAGONAL:
        scores = tl.where(offs_m[:, None] >= offs_n[None, :], scores, HIDDEN)
    m_new = tl.maximum(m, tl.max(scores, axis=1))
    factor = tl.exp2(m - m_new)
    p = tl.exp2(scores - m_new[:, None])
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
    """A program owns BLOCK_M queries of one head, the last queries of each head first."""
    tiles = tl.cdiv(length, BLOCK_M)
    pid = tl.program_id(axis=0)
    b, h = (pid // tiles) // heads, (pid // tiles) % heads
    first = (tiles - 1 - pid % tiles) * BLOCK_M

    offs_m = first + tl.arange(0, BLOCK_M)
    offs_d = tl.arange(0, DIM)
    exists = offs_m[:, None] < length
    q_offs = offs_m.to(tl.int64)[:, None] * stride_qm + offs_d[None, :]
    q = tl.load(head_of(q_ptr, b, h, stride_qb, stride_qh) + q_offs, mask=exists, other=0.0)

    # A fixed block of offsets in registers; what moves is one pointer each for k and v.
    step = tl.arange(0, BLOCK_N)
    tile = step[:, None] * stride_kn + offs_d[None, :]
    k_at = head_of(k_ptr, b, h, stride_kb, stride_kh)
    v_at = head_of(v_ptr, b, h, stride_vb, stride_vh)

    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)
    d = tl.zeros((BLOCK_M,), dtype=tl.float32)
    m = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    for start in range(0, first, BLOCK_N):
        k = tl.load(k_at + tile)
        v = tl.load(v_at + tile)
        acc, m, d = fold(acc, m, d, q, k, v, offs_m, start + step, scale, DIAGONAL=False)
        k_at += BLOCK_N * stride_kn
        v_at += BLOCK_N * stride_vn
    for start in tl.range(first, tl.minimum(first + BLOCK_M, length), BLOCK_N, num_stages=1):
        offs_n = start + step
        k = tl.load(k_at + tile, mask=offs_n[:, None] < length, other=0.0)
        v = tl.load(v_at + tile, mask=offs_n[:, None] < length, other=0.0)
        acc, m, d = fold(acc, m, d, q, k, v, offs_m, offs_n, scale, DIAGONAL=True)
        k_at += BLOCK_N * stride_kn
        v_at += BLOCK_N * stride_vn

    out_offs = offs_m.to(tl.int64)[:, None] * stride_om + offs_d[None, :]
    result = (acc / d[:, None]).to(out_ptr.dtype.element_ty)
    tl.store(head_of(out_ptr, b, h, stride_ob, stride_oh) + out_offs, result, mask=exists)


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v for each head, where a query sees its own key and those before it.

    q, k and v are (batch, heads, length, dim), bf16, fp16 or fp32, dim contiguous; the result goes to `out`
    where one is given.
    """
    batch, heads, length, dim = q.shape
    out = torch.empty((batch, heads, length, dim), device=q.device, dtype=q.dtype) if out is None else out
    grid = lambda meta: (batch * heads * triton.cdiv(length, meta["BLOCK_M"]),)  # noqa: E731
    attention_kernel[grid](
        q, k, v, out, heads, length, LOG2E / math.sqrt(dim),
        *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *out.stride()[:3], DIM=dim,
    )  # fmt: skip
    return out
