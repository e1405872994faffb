# gpu-programming/triton-kernels/attention.py | two mistakes | (1) m_i = m_ij stands before alpha = exp(m_i - m_ij), so alpha is always 1 and earlier blocks are not rescaled (more than one block of keys); it must stand after. (2) The grid rounds L / BLOCK_M down, so the last queries of a length that is no multiple of BLOCK_M have no program; it must be rounded up.
"""Flash attention, causal, in one plain loop with exp and masks everywhere."""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"BLOCK_M": 64, "BLOCK_N": 64}, num_stages=3, num_warps=4),
    triton.Config({"BLOCK_M": 32, "BLOCK_N": 32}, num_stages=2, num_warps=4),
]


def fitting(configs, named_args, **kwargs):
    """64 x 64 for 16-bit inputs of some length, 32 x 32 for the rest."""
    small = named_args["Q"].dtype == torch.float32 or named_args["length"] < 64
    return configs[-1:] if small else configs


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def attention_kernel(
    Q, K, V, Out, heads, length, sm_scale,
    sqb, sqh, sql, skb, skh, skl, svb, svh, svl, sob, soh, sol,
    DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Axis 0 of the grid: blocks of queries; axis 1: heads; axis 2: batch."""
    start_m = tl.program_id(0) * BLOCK_M
    h = tl.program_id(1).to(tl.int64)
    b = tl.program_id(2).to(tl.int64)
    offs_m = start_m + tl.arange(0, BLOCK_M)
    offs_d = tl.arange(0, DIM)
    q_ptrs = Q + b * sqb + h * sqh + offs_m[:, None].to(tl.int64) * sql + offs_d[None, :]
    q = tl.load(q_ptrs, mask=offs_m[:, None] < length, other=0.0)
    m_i = tl.full([BLOCK_M], float("-inf"), dtype=tl.float32)
    l_i = tl.zeros([BLOCK_M], dtype=tl.float32)
    acc = tl.zeros([BLOCK_M, DIM], dtype=tl.float32)
    end = min(start_m + BLOCK_M, length)
    for start_n in range(0, end, BLOCK_N):
        offs_n = start_n + tl.arange(0, BLOCK_N)
        n64 = offs_n[:, None].to(tl.int64)
        alive = offs_n[:, None] < length
        k = tl.load(K + b * skb + h * skh + n64 * skl + offs_d[None, :], mask=alive, other=0.0)
        v = tl.load(V + b * svb + h * svh + n64 * svl + offs_d[None, :], mask=alive, other=0.0)
        qk = tl.dot(q, tl.trans(k), input_precision="ieee") * sm_scale
        qk = tl.where(offs_n[None, :] <= offs_m[:, None], qk, float("-inf"))
        m_ij = tl.maximum(m_i, tl.max(qk, 1))
        p = tl.exp(qk - m_ij[:, None])
        m_i = m_ij
        alpha = tl.exp(m_i - m_ij)
        l_i = l_i * alpha + tl.sum(p, 1)
        acc = acc * alpha[:, None]
        acc += tl.dot(p.to(v.dtype), v, input_precision="ieee")
    acc = acc / l_i[:, None]
    o_ptrs = Out + b * sob + h * soh + offs_m[:, None].to(tl.int64) * sol + offs_d[None, :]
    tl.store(o_ptrs, acc.to(Out.dtype.element_ty), mask=offs_m[:, None] < length)


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Causal attention for (batch, heads, length, dim)."""
    B, H, L, D = q.shape
    if out is None:
        out = torch.empty((B, H, L, D), device=q.device, dtype=q.dtype)
    sm_scale = 1.0 / D**0.5
    grid = lambda META: (max(1, L // META["BLOCK_M"]), H, B)
    attention_kernel[grid](
        q, k, v, out, H, L, sm_scale,
        q.stride(0), q.stride(1), q.stride(2),
        k.stride(0), k.stride(1), k.stride(2),
        v.stride(0), v.stride(1), v.stride(2),
        out.stride(0), out.stride(1), out.stride(2),
        DIM=D,
    )  # fmt: skip
    return out
