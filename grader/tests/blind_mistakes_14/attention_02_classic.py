# gpu-programming/triton-kernels/attention.py | corner | `O = Out + qo_offset + ...` begins the head of the result at `off_z * stride_qz + off_h * stride_qh`, the offset of q, so an `out` whose batch or head strides differ from those of q is written at wrong places; it should be `off_z * stride_oz + off_h * stride_oh`.
"""Causal flash attention, forward pass."""

import math

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, num_stages, num_warps):
    return triton.Config({"BLOCK_M": block_m, "BLOCK_N": block_n}, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 64, 3, 8),
    _config(128, 32, 3, 8),
    _config(64, 64, 3, 4),
    _config(64, 32, 3, 4),
    _config(32, 32, 2, 4),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: tiles no longer than the sequence, and the last one alone for fp32."""
    longest = 0 if named_args["Q"].dtype == torch.float32 else named_args["N_CTX"]
    return [config for config in configs if config.kwargs["BLOCK_M"] <= longest] or configs[-1:]


@triton.jit
def _attn_fwd_inner(
    acc, l_i, m_i, q, K, V, stride_kn, stride_vn, offs_m, lo, hi, N_CTX, qk_scale,
    HEAD_DIM: tl.constexpr, BLOCK_N: tl.constexpr, STAGE: tl.constexpr,
):  # fmt: skip
    """STAGE 1: the blocks below the diagonal. STAGE 2: those that meet it."""
    offs_d = tl.arange(0, HEAD_DIM)
    for start_n in range(lo, hi, BLOCK_N):
        offs_n = start_n + tl.arange(0, BLOCK_N)
        pos = offs_n.to(tl.int64)
        k_ptrs = K + offs_d[:, None] + pos[None, :] * stride_kn
        v_ptrs = V + pos[:, None] * stride_vn + offs_d[None, :]
        # -- compute qk ----
        if STAGE == 2:
            k = tl.load(k_ptrs, mask=offs_n[None, :] < N_CTX, other=0.0)
            qk = tl.dot(q, k, input_precision="ieee") * qk_scale
            qk = tl.where(offs_m[:, None] >= offs_n[None, :], qk, float("-inf"))
        else:
            k = tl.load(k_ptrs)
            qk = tl.dot(q, k, input_precision="ieee") * qk_scale
        m_ij = tl.maximum(m_i, tl.max(qk, 1))
        p = tl.math.exp2(qk - m_ij[:, None])
        l_ij = tl.sum(p, 1)
        # -- update m_i and l_i
        alpha = tl.math.exp2(m_i - m_ij)
        l_i = l_i * alpha + l_ij
        # -- update output accumulator --
        acc = acc * alpha[:, None]
        if STAGE == 2:
            v = tl.load(v_ptrs, mask=offs_n[:, None] < N_CTX, other=0.0)
        else:
            v = tl.load(v_ptrs)
        acc = tl.dot(p.to(v.dtype), v, acc, input_precision="ieee")
        m_i = m_ij
    return acc, l_i, m_i


@triton.autotune(configs=CONFIGS, key=["N_CTX", "HEAD_DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def _attn_fwd(
    Q, K, V, Out, H, N_CTX, qk_scale,
    stride_qz, stride_qh, stride_qm,
    stride_kz, stride_kh, stride_kn,
    stride_vz, stride_vh, stride_vn,
    stride_oz, stride_oh, stride_om,
    HEAD_DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    blocks = tl.cdiv(N_CTX, BLOCK_M)
    start_m = blocks - 1 - tl.program_id(0) % blocks
    off_hz = tl.program_id(0) // blocks
    off_z = (off_hz // H).to(tl.int64)
    off_h = (off_hz % H).to(tl.int64)

    # initialize offsets
    offs_m = start_m * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_d = tl.arange(0, HEAD_DIM)
    rows = offs_m.to(tl.int64)[:, None]
    row_mask = offs_m[:, None] < N_CTX
    qo_offset = off_z * stride_qz + off_h * stride_qh
    k_offset = off_z * stride_kz + off_h * stride_kh
    v_offset = off_z * stride_vz + off_h * stride_vh

    # initialize pointer to m and l
    m_i = tl.zeros([BLOCK_M], dtype=tl.float32) - float("inf")
    l_i = tl.zeros([BLOCK_M], dtype=tl.float32)
    acc = tl.zeros([BLOCK_M, HEAD_DIM], dtype=tl.float32)

    # load q: it will stay in SRAM throughout
    q = tl.load(Q + qo_offset + rows * stride_qm + offs_d[None, :], mask=row_mask, other=0.0)

    # stage 1: off-band
    acc, l_i, m_i = _attn_fwd_inner(
        acc, l_i, m_i, q, K + k_offset, V + v_offset, stride_kn, stride_vn, offs_m,
        0, start_m * BLOCK_M, N_CTX, qk_scale, HEAD_DIM, BLOCK_N, 1,
    )  # fmt: skip
    # stage 2: on-band
    acc, l_i, m_i = _attn_fwd_inner(
        acc, l_i, m_i, q, K + k_offset, V + v_offset, stride_kn, stride_vn, offs_m,
        start_m * BLOCK_M, min((start_m + 1) * BLOCK_M, N_CTX), N_CTX, qk_scale, HEAD_DIM, BLOCK_N, 2,
    )  # fmt: skip

    # epilogue
    acc = acc / l_i[:, None]
    O = Out + qo_offset + rows * stride_om + offs_d[None, :]  # noqa: E741
    tl.store(O, acc.to(Out.type.element_ty), mask=row_mask)


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v for each head, where a query sees its own key and those before it."""
    if out is None:
        out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    Z, H, N_CTX, HEAD_DIM = q.shape
    qk_scale = 1.44269504 / math.sqrt(HEAD_DIM)  # 1/log(2)
    grid = lambda args: (triton.cdiv(N_CTX, args["BLOCK_M"]) * Z * H,)  # noqa: E731
    _attn_fwd[grid](
        q, k, v, out, H, N_CTX, qk_scale,
        q.stride(0), q.stride(1), q.stride(2),
        k.stride(0), k.stride(1), k.stride(2),
        v.stride(0), v.stride(1), v.stride(2),
        out.stride(0), out.stride(1), out.stride(2),
        HEAD_DIM=HEAD_DIM,
    )  # fmt: skip
    return out
