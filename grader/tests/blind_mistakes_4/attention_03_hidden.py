# gpu-programming/triton-kernels/attention.py | wrong everywhere | inner: the row sums l_i are taken of p before the hidden keys are set to 0, so the denominator counts keys of the future and past the end; hidden keys must be removed before the sum
"""Causal attention after FlashAttention-2: base pointers move, offsets stay."""

import math

import torch
import triton
import triton.language as tl

TILES = [(128, 128, 2, 8), (128, 64, 3, 8), (64, 64, 3, 4), (64, 32, 2, 4)]
CONFIGS = [triton.Config({"BLOCK_M": m, "BLOCK_N": n}, num_stages=s, num_warps=w) for m, n, s, w in TILES]


def fitting(configs, named_args, **kwargs):
    if named_args["q_ptr"].dtype == torch.float32:
        return configs[-1:]
    return [c for c in configs if c.kwargs["BLOCK_M"] <= named_args["length"]] or configs[-1:]


@triton.jit
def inner(acc, l_i, m_i, q, k_base, v_base, k_offs, v_offs, lo, hi, length, stride_kn, stride_vn, qk_scale,
          offs_m, offs_n, MASKED: tl.constexpr, BLOCK_N: tl.constexpr, STAGES: tl.constexpr):
    """Walk over the keys from lo to hi."""
    k_base += tl.cast(lo, tl.int64) * stride_kn
    v_base += tl.cast(lo, tl.int64) * stride_vn
    for start_n in tl.range(lo, hi, BLOCK_N, num_stages=STAGES):
        if MASKED:
            here = start_n + offs_n < length
            k = tl.load(k_base + k_offs, mask=here[:, None], other=0.0)
            v = tl.load(v_base + v_offs, mask=here[:, None], other=0.0)
        else:
            k = tl.load(k_base + k_offs)
            v = tl.load(v_base + v_offs)
        qk = tl.dot(q, tl.trans(k), input_precision="ieee")
        qk = qk * qk_scale
        m_ij = tl.maximum(m_i, tl.max(qk, 1))
        alpha = tl.math.exp2(m_i - m_ij)
        p = tl.math.exp2(qk - m_ij[:, None])
        l_i = l_i * alpha + tl.sum(p, 1)
        if MASKED:
            visible = offs_m[:, None] >= (start_n + offs_n)[None, :]
            p = tl.where(visible, p, 0.0)
        acc = acc * alpha[:, None]
        acc = tl.dot(p.to(v.dtype), v, acc, input_precision="ieee")
        m_i = m_ij
        k_base += tl.cast(stride_kn, tl.int64) * BLOCK_N
        v_base += tl.cast(stride_vn, tl.int64) * BLOCK_N
    return acc, l_i, m_i


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, heads, length, qk_scale,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_om,
    DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    tiles = tl.cdiv(length, BLOCK_M)
    pid = tl.program_id(0)
    tile = tiles - 1 - pid % tiles
    off_hz = pid // tiles
    off_z = (off_hz // heads).to(tl.int64)
    off_h = (off_hz % heads).to(tl.int64)
    offs_m = tile * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    offs_d = tl.arange(0, DIM)
    q_offs = offs_m.to(tl.int64)[:, None] * stride_qm + offs_d[None, :]
    o_offs = offs_m.to(tl.int64)[:, None] * stride_om + offs_d[None, :]
    k_offs = offs_n.to(tl.int64)[:, None] * stride_kn + offs_d[None, :]
    v_offs = offs_n.to(tl.int64)[:, None] * stride_vn + offs_d[None, :]
    exists = offs_m[:, None] < length
    q = tl.load(q_ptr + off_z * stride_qb + off_h * stride_qh + q_offs, mask=exists, other=0.0)
    k_base = k_ptr + off_z * stride_kb + off_h * stride_kh
    v_base = v_ptr + off_z * stride_vb + off_h * stride_vh
    m_i = tl.full([BLOCK_M], -float("inf"), tl.float32)
    l_i = tl.zeros([BLOCK_M], tl.float32)
    acc = tl.zeros([BLOCK_M, DIM], tl.float32)
    diag = tile * BLOCK_M
    acc, l_i, m_i = inner(acc, l_i, m_i, q, k_base, v_base, k_offs, v_offs, 0, diag, length, stride_kn, stride_vn,
                          qk_scale, offs_m, offs_n, False, BLOCK_N, None)
    end = tl.minimum(diag + BLOCK_M, length)
    acc, l_i, m_i = inner(acc, l_i, m_i, q, k_base, v_base, k_offs, v_offs, diag, end, length, stride_kn, stride_vn,
                          qk_scale, offs_m, offs_n, True, BLOCK_N, 1)
    acc = acc / l_i[:, None]
    tl.store(out_ptr + off_z * stride_ob + off_h * stride_oh + o_offs, acc.to(out_ptr.dtype.element_ty), mask=exists)


def attention(q, k, v, *, out=None):
    batch, heads, length, dim = q.shape
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device) if out is None else out
    qk_scale = math.log2(math.e) / math.sqrt(dim)
    strides = q.stride()[:3] + k.stride()[:3] + v.stride()[:3] + out.stride()[:3]
    grid = lambda meta: (batch * heads * triton.cdiv(length, meta["BLOCK_M"]),)
    attention_kernel[grid](q, k, v, out, heads, length, qk_scale, *strides, DIM=dim)
    return out
