# gpu-programming/triton-kernels/attention.py | error | In `attention_kernel`, the last store: `(acc / d[:, None]).to(out_ptr.dtype)` converts to the type of the pointer, and fp32 cannot be cast to a pointer; it should be `out_ptr.dtype.element_ty`. Does not compile in any case.
"""Causal attention, one tile of queries a program, with an online softmax to the base 2; autotuned."""

import math

import torch
import triton
import triton.language as tl

# Queries of a program, keys of a step, stages, warps. The last one is for short sequences and for fp32.
SHAPES = ((128, 128, 2, 8), (128, 64, 3, 8), (64, 64, 3, 4), (32, 32, 2, 4))
CONFIGS = [
    triton.Config({"BLOCK_M": block_m, "BLOCK_N": block_n}, num_stages=stages, num_warps=warps)
    for block_m, block_n, stages, warps in SHAPES
]


def fitting(configs, named_args, **kwargs):
    """Tiles no longer than the sequence; for fp32, which has no tensor cores, the smallest tile alone."""
    if named_args["q_ptr"].dtype == torch.float32:
        return configs[-1:]
    return [config for config in configs if config.kwargs["BLOCK_M"] <= named_args["length"]] or configs[-1:]


@triton.jit
def online(scores, m, d):
    """Weights of a block of scores, the factor that brings older sums to the same maximum, and m and d."""
    m_new = tl.maximum(m, tl.max(scores, axis=1))
    p = tl.exp2(scores - m_new[:, None])
    factor = tl.exp2(m - m_new)
    return p, factor, m_new, d * factor + tl.sum(p, axis=1)


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, heads, length, scale,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_om,
    DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Program (i, j) has head i of all batches together and tile j of its queries, counted from the end."""
    batch = (tl.program_id(axis=0) // heads).to(tl.int64)
    head = (tl.program_id(axis=0) % heads).to(tl.int64)
    first = (tl.num_programs(axis=1) - 1 - tl.program_id(axis=1)) * BLOCK_M
    offs_m = first + tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    dims = tl.arange(0, DIM)
    exists = (offs_m < length)[:, None]

    q_head = q_ptr + batch * stride_qb + head * stride_qh
    k_head = k_ptr + batch * stride_kb + head * stride_kh
    v_head = v_ptr + batch * stride_vb + head * stride_vh
    out_head = out_ptr + batch * stride_ob + head * stride_oh
    k_offs = offs_n[:, None] * stride_kn + dims[None, :]
    v_offs = offs_n[:, None] * stride_vn + dims[None, :]
    q = tl.load(q_head + offs_m.to(tl.int64)[:, None] * stride_qm + dims[None, :], mask=exists, other=0.0)

    m = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)

    # Keys that all of the queries see.
    for _ in tl.range(0, first, BLOCK_N):
        k = tl.load(k_head + k_offs)
        scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        p, factor, m, d = online(scores, m, d)
        v = tl.load(v_head + v_offs)
        acc = tl.dot(p.to(v.dtype), v, acc * factor[:, None], input_precision="ieee")
        k_head += BLOCK_N * stride_kn
        v_head += BLOCK_N * stride_vn

    # Keys at the diagonal; those past the end come later than every query.
    for start in tl.range(first, tl.minimum(first + BLOCK_M, length), BLOCK_N, num_stages=1):
        keys = start + offs_n
        real = (keys < length)[:, None]
        k = tl.load(k_head + k_offs, mask=real, other=0.0)
        scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        scores = tl.where(offs_m[:, None] >= keys[None, :], scores, -float("inf"))
        p, factor, m, d = online(scores, m, d)
        v = tl.load(v_head + v_offs, mask=real, other=0.0)
        acc = tl.dot(p.to(v.dtype), v, acc * factor[:, None], input_precision="ieee")
        k_head += BLOCK_N * stride_kn
        v_head += BLOCK_N * stride_vn

    out_ptrs = out_head + offs_m.to(tl.int64)[:, None] * stride_om + dims[None, :]
    tl.store(out_ptrs, (acc / d[:, None]).to(out_ptr.dtype), mask=exists)


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v for each head, where a query sees its own key and those before it."""
    if out is None:
        out = torch.empty(q.shape, device=q.device, dtype=q.dtype)
    batch, heads, length, dim = q.shape
    grid = lambda meta: (batch * heads, triton.cdiv(length, meta["BLOCK_M"]))  # noqa: E731
    attention_kernel[grid](
        q, k, v, out, heads, length, math.log2(math.e) / math.sqrt(dim),
        q.stride(0), q.stride(1), q.stride(2), k.stride(0), k.stride(1), k.stride(2),
        v.stride(0), v.stride(1), v.stride(2), out.stride(0), out.stride(1), out.stride(2), DIM=dim,
    )  # fmt: skip
    return out
