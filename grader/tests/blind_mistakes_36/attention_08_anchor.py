# gpu-programming/triton-kernels/attention.py | two mistakes | (1) In attention the scale is dim ** -0.5 without the factor log2(e), although fold uses exp2: the weights are too flat, in every case with more than one key; it should be log2(e) / sqrt(dim). (2) In fold d is not rescaled when the maximum rises: d + tl.sum(p, axis=1) should be d * alpha + tl.sum(p, axis=1), as for acc; wrong (rows too small, by one factor a row) wherever a row has more than one block of keys and a later block raises its maximum.
"""Causal attention, online softmax: blocks wholly before the tile without masks, then those on the diagonal."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, num_stages, num_warps):
    """One candidate: queries of a program and keys of a step, powers of two, pipeline depth and warps."""
    return triton.Config({"BLOCK_M": block_m, "BLOCK_N": block_n}, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 128, 2, 8),
    _config(128, 64, 3, 8),
    _config(64, 64, 3, 4),
    _config(64, 32, 2, 4),
    _config(32, 32, 2, 4),
    _config(16, 16, 2, 2),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: tiles no longer than the sequence, and the last one alone for fp32."""
    longest = 0 if named_args["q_ptr"].dtype == torch.float32 else named_args["length"]
    return [config for config in configs if config.kwargs["BLOCK_M"] <= longest] or configs[-1:]


@triton.jit
def fold(acc, m, d, q, k_ptrs, v_ptrs, offs_m, keys, length, scale, DIAGONAL: tl.constexpr):
    """The sums acc of p * v and d of p with one more block of keys, and the maximum m."""
    if DIAGONAL:
        k = tl.load(k_ptrs, mask=keys[:, None] < length, other=0.0)
        v = tl.load(v_ptrs, mask=keys[:, None] < length, other=0.0)
    else:
        k = tl.load(k_ptrs)
        v = tl.load(v_ptrs)
    scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
    if DIAGONAL:
        scores = tl.where(offs_m[:, None] >= keys[None, :], scores, -float("inf"))
    m_new = tl.maximum(m, tl.max(scores, axis=1))
    alpha = tl.exp2(m - m_new)
    p = tl.exp2(scores - m_new[:, None])
    d = d + tl.sum(p, axis=1)
    acc = acc * alpha[:, None]
    acc = tl.dot(p.to(v.dtype), v, acc, input_precision="ieee")
    return acc, m_new, d


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, heads, length, scale,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_om,
    DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Program (i, j) owns tile j, counted from the end, of head i modulo heads in batch i over heads."""
    batch = (tl.program_id(0) // heads).to(tl.int64)
    head = (tl.program_id(0) % heads).to(tl.int64)
    start_m = (tl.num_programs(1) - 1 - tl.program_id(1)) * BLOCK_M

    offs_m = start_m + tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    offs_d = tl.arange(0, DIM)
    rows = offs_m.to(tl.int64)[:, None]

    q_ptrs = q_ptr + batch * stride_qb + head * stride_qh + rows * stride_qm + offs_d[None, :]
    k_head = k_ptr + batch * stride_kb + head * stride_kh
    v_head = v_ptr + batch * stride_vb + head * stride_vh
    k_block = offs_n[:, None] * stride_kn + offs_d[None, :]
    v_block = offs_n[:, None] * stride_vn + offs_d[None, :]
    q = tl.load(q_ptrs, mask=offs_m[:, None] < length, other=0.0)

    m = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)

    for start_n in tl.range(0, start_m, BLOCK_N):
        acc, m, d = fold(
            acc, m, d, q, k_head + k_block, v_head + v_block, offs_m, start_n + offs_n, length, scale, False
        )
        k_head += BLOCK_N * stride_kn
        v_head += BLOCK_N * stride_vn
    end = tl.minimum(start_m + BLOCK_M, length)
    for start_n in tl.range(start_m, end, BLOCK_N, num_stages=1):
        acc, m, d = fold(
            acc, m, d, q, k_head + k_block, v_head + v_block, offs_m, start_n + offs_n, length, scale, True
        )
        k_head += BLOCK_N * stride_kn
        v_head += BLOCK_N * stride_vn

    out_ptrs = out_ptr + batch * stride_ob + head * stride_oh + rows * stride_om + offs_d[None, :]
    tl.store(out_ptrs, (acc / d[:, None]).to(out_ptr.dtype.element_ty), mask=offs_m[:, None] < length)


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v for each head, where a query sees its own key and those before it."""
    batch, heads, length, dim = q.shape
    if out is None:
        out = torch.empty((batch, heads, length, dim), dtype=q.dtype, device=q.device)
    scale = dim**-0.5
    qb, qh, qm, _ = q.stride()
    kb, kh, kn, _ = k.stride()
    vb, vh, vn, _ = v.stride()
    ob, oh, om, _ = out.stride()

    def grid(meta):
        return batch * heads, triton.cdiv(length, meta["BLOCK_M"])

    attention_kernel[grid](
        q, k, v, out, heads, length, scale, qb, qh, qm, kb, kh, kn, vb, vh, vn, ob, oh, om, DIM=dim
    )
    return out
