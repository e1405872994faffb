# gpu-programming/triton-kernels/attention.py | wrong everywhere | in attention_kernel hidden keys (those after the query, and those past the end) get weight 0 by tl.where only after `d = d * factor + tl.sum(p, axis=1)`, so d counts them and every row is too small by a factor of its own; shows in all cases, even with one key (the zero-filled keys of the block count), except in the few rows that have no hidden key in the blocks of their tile; the scores should be set to -inf before the maximum is taken
"""Causal attention with a running softmax: a program keeps a tile of queries and walks over their keys."""

import math

import torch
import triton
import triton.language as tl

# The last one is for short sequences and for fp32.
CONFIGS = [
    triton.Config({"BLOCK_M": 128, "BLOCK_N": 64}, num_stages=3, num_warps=8),
    triton.Config({"BLOCK_M": 64, "BLOCK_N": 64}, num_stages=3, num_warps=4),
    triton.Config({"BLOCK_M": 64, "BLOCK_N": 32}, num_stages=4, num_warps=4),
    triton.Config({"BLOCK_M": 32, "BLOCK_N": 16}, num_stages=2, num_warps=4),
]


def fitting(configs, named_args, **kwargs):
    """Tiles no longer than the sequence; fp32 and short sequences take the last one."""
    if named_args["q_ptr"].dtype == torch.float32:
        return configs[-1:]
    return [c for c in configs if c.kwargs["BLOCK_M"] <= named_args["length"]] or configs[-1:]


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, heads, length, scale,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_om,
    DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """One tile of BLOCK_M queries of one head; scale is log2(e) / sqrt(DIM)."""
    pid = tl.program_id(axis=0)
    tiles = tl.cdiv(length, BLOCK_M)
    # Within a head the tile with the most keys comes first.
    first = (tiles - 1 - pid % tiles) * BLOCK_M
    pair = pid // tiles
    batch, head = (pair // heads).to(tl.int64), (pair % heads).to(tl.int64)

    queries = first + tl.arange(0, BLOCK_M)
    dims = tl.arange(0, DIM)
    alive = queries[:, None] < length
    rows = queries.to(tl.int64)[:, None]
    q_head = q_ptr + batch * stride_qb + head * stride_qh
    k_head = k_ptr + batch * stride_kb + head * stride_kh
    v_head = v_ptr + batch * stride_vb + head * stride_vh
    out_head = out_ptr + batch * stride_ob + head * stride_oh
    q = tl.load(q_head + rows * stride_qm + dims[None, :], mask=alive, other=0.0)

    m = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)
    for start in range(0, tl.minimum(first + BLOCK_M, length), BLOCK_N):
        keys = start + tl.arange(0, BLOCK_N)
        far = keys.to(tl.int64)
        inside = keys < length
        k = tl.load(k_head + far[None, :] * stride_kn + dims[:, None], mask=inside[None, :], other=0.0)
        v = tl.load(v_head + far[:, None] * stride_vn + dims[None, :], mask=inside[:, None], other=0.0)

        scores = tl.dot(q, k, input_precision="ieee") * scale
        m_new = tl.maximum(m, tl.max(scores, axis=1))
        p = tl.exp2(scores - m_new[:, None])
        factor = tl.exp2(m - m_new)
        d = d * factor + tl.sum(p, axis=1)
        # A query sees its own key and those before it.
        p = tl.where(queries[:, None] >= keys[None, :], p, 0.0)
        acc = tl.dot(p.to(v.dtype), v, acc * factor[:, None], input_precision="ieee")
        m = m_new

    result = acc / d[:, None]
    tl.store(out_head + rows * stride_om + dims[None, :], result.to(out_ptr.dtype.element_ty), mask=alive)


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v for each head, causal; (batch, heads, length, dim), dim contiguous."""
    batch, heads, length, dim = q.shape
    if out is None:
        out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    grid = lambda meta: (batch * heads * triton.cdiv(length, meta["BLOCK_M"]),)  # noqa: E731
    attention_kernel[grid](
        q, k, v, out, heads, length, math.log2(math.e) / math.sqrt(dim),
        q.stride(0), q.stride(1), q.stride(2), k.stride(0), k.stride(1), k.stride(2),
        v.stride(0), v.stride(1), v.stride(2), out.stride(0), out.stride(1), out.stride(2),
        DIM=dim,
    )  # fmt: skip
    return out
