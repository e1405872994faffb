# gpu-programming/triton-kernels/attention.py | everywhere | The block's products are added to acc before acc is rescaled: `acc = tl.dot(p, v, acc)` and then `acc = acc * alpha[:, None]`, so each block's own p @ v is also multiplied by alpha = exp2(m_old - m_new), which is 0 for the first block: its values vanish | "acc = acc * exp(m - m_new) + p @ v"; all inputs (results 0 where one block of keys suffices)
"""Causal attention, flash style, one loop."""

import math

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, num_stages, num_warps):
    return triton.Config({"BLOCK_M": block_m, "BLOCK_N": block_n}, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [_config(128, 64, 3, 8), _config(64, 64, 3, 4), _config(64, 32, 3, 4), _config(16, 16, 2, 1)]


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
    start_m = tl.num_programs(0) - 1 - tl.program_id(0)
    off_hz = tl.program_id(1)
    off_z = (off_hz // heads).to(tl.int64)
    off_h = (off_hz % heads).to(tl.int64)
    q_ptr += off_z * stride_qb + off_h * stride_qh
    k_ptr += off_z * stride_kb + off_h * stride_kh
    v_ptr += off_z * stride_vb + off_h * stride_vh
    out_ptr += off_z * stride_ob + off_h * stride_oh

    offs_m = (start_m * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)
    offs_d = tl.arange(0, DIM)
    q = tl.load(q_ptr + offs_m[:, None] * stride_qm + offs_d[None, :], mask=offs_m[:, None] < length, other=0.0)

    m_i = tl.zeros([BLOCK_M], dtype=tl.float32) - float("inf")
    l_i = tl.zeros([BLOCK_M], dtype=tl.float32)
    acc = tl.zeros([BLOCK_M, DIM], dtype=tl.float32)
    hi = tl.minimum((start_m + 1) * BLOCK_M, length)
    for start_n in range(0, hi, BLOCK_N):
        offs_n = (start_n + tl.arange(0, BLOCK_N)).to(tl.int64)
        # -- scores --
        kt = tl.load(k_ptr + offs_n[None, :] * stride_kn + offs_d[:, None], mask=offs_n[None, :] < length, other=0.0)
        qk = tl.dot(q, kt, input_precision="ieee") * scale
        qk = tl.where(offs_m[:, None] >= offs_n[None, :], qk, float("-inf"))
        # -- online softmax --
        m_ij = tl.maximum(m_i, tl.max(qk, 1))
        p = tl.exp2(qk - m_ij[:, None])
        alpha = tl.exp2(m_i - m_ij)
        l_i = l_i * alpha + tl.sum(p, 1)
        # -- accumulate --
        v = tl.load(v_ptr + offs_n[:, None] * stride_vn + offs_d[None, :], mask=offs_n[:, None] < length, other=0.0)
        acc = tl.dot(p.to(v.dtype), v, acc, input_precision="ieee")
        acc = acc * alpha[:, None]
        m_i = m_ij

    acc = acc / l_i[:, None]
    tl.store(
        out_ptr + offs_m[:, None] * stride_om + offs_d[None, :],
        acc.to(out_ptr.dtype.element_ty),
        mask=offs_m[:, None] < length,
    )


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(q)
    n_batch, n_heads, length, dim = q.shape
    qk_scale = 1.4426950408889634 / dim**0.5
    attention_kernel[lambda meta: (triton.cdiv(length, meta["BLOCK_M"]), n_batch * n_heads)](
        q, k, v, out, n_heads, length, qk_scale,
        q.stride(0), q.stride(1), q.stride(2),
        k.stride(0), k.stride(1), k.stride(2),
        v.stride(0), v.stride(1), v.stride(2),
        out.stride(0), out.stride(1), out.stride(2),
        DIM=dim,
    )  # fmt: skip
    return out
