# gpu-programming/triton-kernels/attention.py | corner | In attn_fwd the rows of V are addressed with stride_kn, the row stride of K (in the pointers v_ptrs and in their advance), so that the result is wrong where k and v have different strides; it should be stride_vn.
"""Causal flash attention forward. Two loops in one helper: full blocks, then the blocks on the diagonal."""

import math

import torch
import triton
import triton.language as tl

LOG2_E = math.log2(math.e)
TILES = [(128, 128, 2, 8), (128, 64, 3, 8), (64, 64, 3, 4), (64, 32, 3, 4), (32, 16, 2, 4)]
CONFIGS = [triton.Config({"BLOCK_M": t[0], "BLOCK_N": t[1]}, num_stages=t[2], num_warps=t[3]) for t in TILES]


def early(configs, named_args, **kwargs):
    longest = 32 if named_args["q_ptr"].dtype == torch.float32 else max(32, named_args["length"])
    return [c for c in configs if c.kwargs["BLOCK_M"] <= longest]


@triton.jit
def attend(
    acc, m, d, q, k_ptrs, v_ptrs, step_k, step_v, queries, length, scale, begin, end,
    BLOCK_N: tl.constexpr, STAGES: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Go on with the keys from begin to end; the pointers are at begin."""
    offs_n = tl.arange(0, BLOCK_N)
    for n in tl.range(begin, end, BLOCK_N, num_stages=STAGES):
        keys = n + offs_n
        if MASKED:
            k = tl.load(k_ptrs, mask=(keys < length)[None, :], other=0.0)
        else:
            k = tl.load(k_ptrs)
        qk = tl.dot(q, k, input_precision="ieee")
        if MASKED:
            qk = tl.where(queries[:, None] >= keys[None, :], qk, float("-inf"))
        m_next = tl.maximum(m, tl.max(qk, 1) * scale)
        p = tl.math.exp2(qk * scale - m_next[:, None])
        alpha = tl.math.exp2(m - m_next)
        if MASKED:
            v = tl.load(v_ptrs, mask=(keys < length)[:, None], other=0.0)
        else:
            v = tl.load(v_ptrs)
        acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None], input_precision="ieee")
        d = d * alpha + tl.sum(p, 1)
        m = m_next
        k_ptrs += step_k
        v_ptrs += step_v
    return acc, m, d, k_ptrs, v_ptrs


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": early})
@triton.jit
def attn_fwd(
    q_ptr, k_ptr, v_ptr, out_ptr,
    heads, length, scale,
    stride_qb, stride_qh, stride_qm,
    stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn,
    stride_ob, stride_oh, stride_om,
    DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    tiles = tl.cdiv(length, BLOCK_M)
    which = tl.program_id(0)
    tile = tiles - 1 - which % tiles
    b = (which // tiles // heads).to(tl.int64)
    h = (which // tiles % heads).to(tl.int64)

    begin = tile * BLOCK_M
    queries = begin + tl.arange(0, BLOCK_M)
    real = (queries < length)[:, None]
    offs_m = queries.to(tl.int64)[:, None]
    offs_n = tl.arange(0, BLOCK_N).to(tl.int64)
    offs_d = tl.arange(0, DIM)

    q = tl.load(q_ptr + b * stride_qb + h * stride_qh + offs_m * stride_qm + offs_d[None, :], mask=real, other=0.0)
    k_ptrs = k_ptr + b * stride_kb + h * stride_kh + offs_n[None, :] * stride_kn + offs_d[:, None]
    v_ptrs = v_ptr + b * stride_vb + h * stride_vh + offs_n[:, None] * stride_kn + offs_d[None, :]
    step_k = BLOCK_N * stride_kn
    step_v = BLOCK_N * stride_kn

    m = tl.full((BLOCK_M,), float("-inf"), tl.float32)
    d = tl.zeros((BLOCK_M,), tl.float32)
    acc = tl.zeros((BLOCK_M, DIM), tl.float32)
    acc, m, d, k_ptrs, v_ptrs = attend(
        acc, m, d, q, k_ptrs, v_ptrs, step_k, step_v, queries, length, scale, 0, begin, BLOCK_N, 3, False
    )
    acc, m, d, k_ptrs, v_ptrs = attend(
        acc, m, d, q, k_ptrs, v_ptrs, step_k, step_v, queries, length, scale,
        begin, tl.minimum(begin + BLOCK_M, length), BLOCK_N, 1, True,
    )  # fmt: skip
    rows = out_ptr + b * stride_ob + h * stride_oh + offs_m * stride_om + offs_d[None, :]
    tl.store(rows, (acc / d[:, None]).to(out_ptr.dtype.element_ty), mask=real)


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Attention of each query to its own key and those before it."""
    batch, heads, length, dim = q.size()
    if out is None:
        out = torch.empty((batch, heads, length, dim), dtype=q.dtype, device=q.device)
    assert k.size(2) == length and v.size(2) == length, f"{k.size(2)} keys for {length} queries"

    def grid(meta):
        return (batch * heads * triton.cdiv(length, meta["BLOCK_M"]),)

    attn_fwd[grid](
        q, k, v, out,
        heads, length, LOG2_E / math.sqrt(dim),
        q.stride(0), q.stride(1), q.stride(2),
        k.stride(0), k.stride(1), k.stride(2),
        v.stride(0), v.stride(1), v.stride(2),
        out.stride(0), out.stride(1), out.stride(2),
        DIM=dim,
    )  # fmt: skip
    return out
