# gpu-programming/triton-kernels/attention.py | error | fold: p stays fp32 in tl.dot(p, v) while v is fp16 or bf16, and the operands of a dot must have one dtype; it must be p.to(v.dtype)
"""Causal attention, online softmax, the keys before the tile first and then those at the diagonal."""

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
    _config(64, 32, 2, 4),
]


def fitting(configs, named_args, **kwargs):
    longest = 0 if named_args["q_ptr"].dtype == torch.float32 else named_args["length"]
    return [config for config in configs if config.kwargs["BLOCK_M"] <= longest] or configs[-1:]


@triton.jit
def step(acc, m, d, q, k_ptrs, v_ptrs, offs_m, keys, length, scale, DIAGONAL: tl.constexpr):
    if DIAGONAL:
        k = tl.load(k_ptrs, mask=keys[None, :] < length, other=0.0)
        v = tl.load(v_ptrs, mask=keys[:, None] < length, other=0.0)
    else:
        k = tl.load(k_ptrs)
        v = tl.load(v_ptrs)
    scores = tl.dot(q, k, input_precision="ieee")
    if DIAGONAL:
        scores = tl.where(offs_m[:, None] >= keys[None, :], scores, -float("inf"))
    m_new = tl.maximum(m, tl.max(scores, axis=1) * scale)
    p = tl.exp2(scores * scale - m_new[:, None])
    alpha = tl.exp2(m - m_new)
    d = d * alpha + tl.sum(p, axis=1)
    acc = tl.dot(p, v, acc * alpha[:, None], input_precision="ieee")
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
    bh = pid // tiles
    batch = (bh // heads).to(tl.int64)
    head = (bh % heads).to(tl.int64)
    start = (tiles - 1 - pid % tiles) * BLOCK_M
    offs_m = start + tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    offs_d = tl.arange(0, DIM)
    rows = offs_m.to(tl.int64)[:, None]
    cols = offs_n.to(tl.int64)
    q = tl.load(q_ptr + batch * stride_qb + head * stride_qh + rows * stride_qm + offs_d[None, :],
                mask=rows < length, other=0.0)
    k_ptrs = k_ptr + batch * stride_kb + head * stride_kh + cols[None, :] * stride_kn + offs_d[:, None]
    v_ptrs = v_ptr + batch * stride_vb + head * stride_vh + cols[:, None] * stride_vn + offs_d[None, :]
    k_step = tl.cast(stride_kn, tl.int64) * BLOCK_N
    v_step = tl.cast(stride_vn, tl.int64) * BLOCK_N
    m = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)
    for n in range(0, start, BLOCK_N):
        acc, m, d = step(acc, m, d, q, k_ptrs, v_ptrs, offs_m, n + offs_n, length, scale, False)
        k_ptrs += k_step
        v_ptrs += v_step
    for n in tl.range(start, tl.minimum(start + BLOCK_M, length), BLOCK_N, num_stages=1):
        acc, m, d = step(acc, m, d, q, k_ptrs, v_ptrs, offs_m, n + offs_n, length, scale, True)
        k_ptrs += k_step
        v_ptrs += v_step
    o_ptrs = out_ptr + batch * stride_ob + head * stride_oh + rows * stride_om + offs_d[None, :]
    tl.store(o_ptrs, (acc / d[:, None]).to(out_ptr.dtype.element_ty), mask=rows < length)


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    batch, heads, length, dim = q.shape
    if out is None:
        out = torch.empty((batch, heads, length, dim), device=q.device, dtype=q.dtype)
    scale = 1.4426950408889634 / math.sqrt(dim)
    grid = lambda meta: (triton.cdiv(length, meta["BLOCK_M"]) * batch * heads,)
    attention_kernel[grid](
        q, k, v, out, heads, length, scale,
        q.stride(0), q.stride(1), q.stride(2), k.stride(0), k.stride(1), k.stride(2),
        v.stride(0), v.stride(1), v.stride(2), out.stride(0), out.stride(1), out.stride(2), DIM=dim,
    )  # fmt: skip
    return out
