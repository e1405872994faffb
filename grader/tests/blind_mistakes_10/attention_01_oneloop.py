# gpu-programming/triton-kernels/attention.py | wrong everywhere | d is summed before the mask: `d = d * factor + tl.sum(p, axis=1)` comes before `p = tl.where(seen, p, 0.0)`; must come after it. The weights of hidden keys (later ones of the block, and those past the end with score 0) count in d, so a row's weights sum to less than 1. Shows in nearly every row.
"""Causal attention with an online softmax: one loop over the keys up to the diagonal."""

import math

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"BLOCK_M": 128, "BLOCK_N": 64}, num_stages=3, num_warps=8),
    triton.Config({"BLOCK_M": 64, "BLOCK_N": 64}, num_stages=3, num_warps=4),
    triton.Config({"BLOCK_M": 64, "BLOCK_N": 32}, num_stages=3, num_warps=4),
    triton.Config({"BLOCK_M": 32, "BLOCK_N": 32}, num_stages=2, num_warps=4),
]


def fitting(configs, named_args, **kwargs):
    """Tiles no longer than the sequence, and the last one alone for fp32."""
    longest = 0 if named_args["q_ptr"].dtype == torch.float32 else named_args["length"]
    return [config for config in configs if config.kwargs["BLOCK_M"] <= longest] or configs[-1:]


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, heads, length, scale,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_om,
    DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    batch = (tl.program_id(0) // heads).to(tl.int64)
    head = (tl.program_id(0) % heads).to(tl.int64)
    tile = tl.num_programs(1) - 1 - tl.program_id(1)
    q_ptr += batch * stride_qb + head * stride_qh
    k_ptr += batch * stride_kb + head * stride_kh
    v_ptr += batch * stride_vb + head * stride_vh
    out_ptr += batch * stride_ob + head * stride_oh
    offs_m = tile.to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N).to(tl.int64)
    dims = tl.arange(0, DIM)
    q = tl.load(q_ptr + offs_m[:, None] * stride_qm + dims[None, :], mask=offs_m[:, None] < length, other=0.0)
    m = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)
    for start in range(0, tl.minimum((tile + 1) * BLOCK_M, length), BLOCK_N):
        keys = start + offs_n
        k = tl.load(k_ptr + keys[None, :] * stride_kn + dims[:, None], mask=keys[None, :] < length, other=0.0)
        v = tl.load(v_ptr + keys[:, None] * stride_vn + dims[None, :], mask=keys[:, None] < length, other=0.0)
        scores = tl.dot(q, k, input_precision="ieee") * scale
        seen = offs_m[:, None] >= keys[None, :]
        m_new = tl.maximum(m, tl.max(tl.where(seen, scores, -float("inf")), axis=1))
        p = tl.exp2(scores - m_new[:, None])
        factor = tl.exp2(m - m_new)
        d = d * factor + tl.sum(p, axis=1)
        p = tl.where(seen, p, 0.0)  # the future has no weight
        acc = tl.dot(p.to(v.dtype), v, acc * factor[:, None], input_precision="ieee")
        m = m_new
    result = acc / d[:, None]
    tl.store(
        out_ptr + offs_m[:, None] * stride_om + dims[None, :],
        result.to(out_ptr.dtype.element_ty),
        mask=offs_m[:, None] < length,
    )


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v for each head, where a query sees its own key and those before it."""
    if out is None:
        out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    batch, heads, length, dim = q.shape
    scale = math.log2(math.e) / math.sqrt(dim)
    attention_kernel[lambda meta: (batch * heads, triton.cdiv(length, meta["BLOCK_M"]))](
        q, k, v, out, heads, length, scale,
        q.stride(0), q.stride(1), q.stride(2), k.stride(0), k.stride(1), k.stride(2),
        v.stride(0), v.stride(1), v.stride(2), out.stride(0), out.stride(1), out.stride(2),
        DIM=dim,
    )  # fmt: skip
    return out
