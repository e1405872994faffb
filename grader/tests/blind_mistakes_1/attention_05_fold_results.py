# gpu-programming/triton-kernels/attention.py | error | `fold` returns (m_new, d, acc) but both loops unpack it as `acc, m, d = fold(...)`: acc becomes the vector m, m the vector d and d the matrix acc, so the next block or the store mixes blocks of wrong shapes: an error on incompatible shapes in the interpreter, a compile error (type of a loop-carried variable changes) on a GPU | "acc, m and d" carried from block to block; all inputs
"""Causal attention without the matrix of scores: online softmax over blocks of keys, autotuned."""

import math

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, num_stages, num_warps):
    """One candidate: queries of a program and keys of a step, powers of two, pipeline depth and warps."""
    return triton.Config({"BLOCK_M": block_m, "BLOCK_N": block_n}, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [_config(*c) for c in [(128, 128, 2, 8), (128, 64, 3, 8), (64, 64, 3, 4), (32, 32, 3, 4)]]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: tiles no longer than the sequence, and the last one alone for fp32."""
    # Exact fp32 runs without tensor cores, where a large tile unrolls into thousands of instructions.
    longest = 0 if named_args["q_ptr"].dtype == torch.float32 else named_args["length"]
    return [config for config in configs if config.kwargs["BLOCK_M"] <= longest] or configs[-1:]


@triton.jit
def fold(acc, m, d, q, k_ptrs, v_ptrs, offs_m, keys, length, scale, DIAGONAL: tl.constexpr):
    """One more block of keys."""
    if DIAGONAL:
        k = tl.load(k_ptrs, mask=keys[None, :] < length, other=0.0)
    else:
        k = tl.load(k_ptrs)
    scores = tl.dot(q, k, input_precision="ieee")
    if DIAGONAL:
        scores = tl.where(offs_m[:, None] >= keys[None, :], scores, float("-inf"))
    m_new = tl.maximum(m, tl.max(scores, 1) * scale)
    p = tl.exp2(scores * scale - m_new[:, None])
    alpha = tl.exp2(m - m_new)
    if DIAGONAL:
        v = tl.load(v_ptrs, mask=keys[:, None] < length, other=0.0)
    else:
        v = tl.load(v_ptrs)
    acc = acc * alpha[:, None] + tl.dot(p.to(v.dtype), v, input_precision="ieee")
    d = d * alpha + tl.sum(p, 1)
    return m_new, d, acc


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, heads, length, scale,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_om,
    DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    pid, n_tiles = tl.program_id(0), tl.cdiv(length, BLOCK_M)
    which, tile = pid // n_tiles, n_tiles - 1 - pid % n_tiles
    b, h = (which // heads).to(tl.int64), (which % heads).to(tl.int64)
    begin = tile * BLOCK_M
    offs_m = begin + tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    offs_d = tl.arange(0, DIM)
    q_row = q_ptr + b * stride_qb + h * stride_qh + offs_m.to(tl.int64) * stride_qm
    q = tl.load(q_row[:, None] + offs_d[None, :], mask=offs_m[:, None] < length, other=0.0)
    k_base = k_ptr + b * stride_kb + h * stride_kh
    v_base = v_ptr + b * stride_vb + h * stride_vh

    m = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)
    for start in range(0, begin, BLOCK_N):
        keys = (start + offs_n).to(tl.int64)
        k_ptrs = k_base + keys[None, :] * stride_kn + offs_d[:, None]
        v_ptrs = v_base + keys[:, None] * stride_vn + offs_d[None, :]
        acc, m, d = fold(acc, m, d, q, k_ptrs, v_ptrs, offs_m, keys, length, scale, DIAGONAL=False)
    for start in tl.range(begin, min(begin + BLOCK_M, length), BLOCK_N, num_stages=1):
        keys = (start + offs_n).to(tl.int64)
        k_ptrs = k_base + keys[None, :] * stride_kn + offs_d[:, None]
        v_ptrs = v_base + keys[:, None] * stride_vn + offs_d[None, :]
        acc, m, d = fold(acc, m, d, q, k_ptrs, v_ptrs, offs_m, keys, length, scale, DIAGONAL=True)
    o_row = out_ptr + b * stride_ob + h * stride_oh + offs_m.to(tl.int64) * stride_om
    result = (acc / d[:, None]).to(out_ptr.dtype.element_ty)
    tl.store(o_row[:, None] + offs_d[None, :], result, mask=offs_m[:, None] < length)


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v for each head, where a query sees its own key and those before it."""
    out = torch.empty_like(q) if out is None else out
    batch, heads, length, dim = q.shape
    programs = lambda meta: (batch * heads * triton.cdiv(length, meta["BLOCK_M"]),)  # noqa: E731
    strides = []
    for x in (q, k, v, out):
        strides += x.stride()[:3]
    attention_kernel[programs](
        q, k, v, out, heads, length, math.log2(math.e) / math.sqrt(dim), *strides, DIM=dim
    )
    return out
