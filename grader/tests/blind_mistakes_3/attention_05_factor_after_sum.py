# gpu-programming/triton-kernels/attention.py | wrong everywhere | fold: acc is rescaled behind the product, (acc + p @ v) * factor, so the new block's values get the factor of the old maximum as well; in the first block the factor is exp2(-inf) = 0 and its values are lost. It must be acc * factor + p @ v.
import math

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"BLOCK_M": bm, "BLOCK_N": bn}, num_stages=s, num_warps=w)
    for bm, bn, s, w in ((128, 128, 2, 8), (128, 64, 3, 8), (64, 64, 3, 4), (64, 32, 2, 4), (32, 32, 2, 4))
]


def fitting(configs, named_args, **kwargs):
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
    # flat grid, the long rows of all heads first
    n_tiles = tl.cdiv(length, BLOCK_M)
    pairs = tl.num_programs(0) // n_tiles
    tile = n_tiles - 1 - tl.program_id(0) // pairs
    pair = tl.program_id(0) % pairs
    b = (pair // heads).to(tl.int64)
    h = (pair % heads).to(tl.int64)
    q_ptr += b * stride_qb + h * stride_qh
    k_ptr += b * stride_kb + h * stride_kh
    v_ptr += b * stride_vb + h * stride_vh
    out_ptr += b * stride_ob + h * stride_oh

    offs_m = tile * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_d = tl.arange(0, DIM)
    rows = offs_m.to(tl.int64)[:, None]
    q = tl.load(q_ptr + rows * stride_qm + offs_d[None, :], mask=rows < length, other=0.0)
    m = tl.full((BLOCK_M,), float("-inf"), tl.float32)
    l = tl.zeros((BLOCK_M,), tl.float32)
    acc = tl.zeros((BLOCK_M, DIM), tl.float32)
    last = tl.minimum((tile + 1) * BLOCK_M, length)
    for start in range(0, last, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        keys = offs_n.to(tl.int64)[:, None]
        k = tl.load(k_ptr + keys * stride_kn + offs_d[None, :], mask=keys < length, other=0.0)
        v = tl.load(v_ptr + keys * stride_vn + offs_d[None, :], mask=keys < length, other=0.0)
        s = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        s = tl.where(offs_m[:, None] >= offs_n[None, :], s, float("-inf"))
        m_new = tl.maximum(m, tl.max(s, 1))
        alpha = tl.exp2(m - m_new)
        p = tl.exp2(s - m_new[:, None])
        l = l * alpha + tl.sum(p, 1)
        acc = tl.dot(p.to(v.dtype), v, acc, input_precision="ieee")
        acc *= alpha[:, None]
        m = m_new
    acc /= l[:, None]
    tl.store(out_ptr + rows * stride_om + offs_d[None, :], acc.to(out_ptr.dtype.element_ty), mask=rows < length)


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Causal attention for (batch, heads, length, dim)."""
    if out is None:
        out = torch.empty_like(q)
    batch, heads, length, dim = q.shape
    attention_kernel[lambda meta: (triton.cdiv(length, meta["BLOCK_M"]) * batch * heads,)](
        q, k, v, out, heads, length, 1.4426950408889634 / math.sqrt(dim),
        q.stride(0), q.stride(1), q.stride(2), k.stride(0), k.stride(1), k.stride(2),
        v.stride(0), v.stride(1), v.stride(2), out.stride(0), out.stride(1), out.stride(2), DIM=dim,
    )  # fmt: skip
    return out
