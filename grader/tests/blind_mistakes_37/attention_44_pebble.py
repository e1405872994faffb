# gpu-programming/triton-kernels/attention.py | error | fold returns (m_new, d, acc), but attention_kernel unpacks it as `acc, m, d = fold(...)` in both loops: the loop variable acc, (BLOCK_M, DIM), becomes a (BLOCK_M,) block, so Triton does not compile the kernel ("Loop-carried variable acc has initial type ... but is re-assigned to ..."), and in the interpreter the shapes do not fit in the next step or in the division and the store. Shows in every case. fold should end with `return acc, m_new, d * fade + tl.sum(p, axis=1)`.
"""Causal attention without the matrix of scores: online softmax over blocks of keys, autotuned."""

import math

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, num_stages, num_warps):
    return triton.Config({"BLOCK_M": block_m, "BLOCK_N": block_n}, num_stages=num_stages, num_warps=num_warps)


# BLOCK_N divides BLOCK_M: the loop over full blocks ends where the tile begins.
CONFIGS = [
    _config(128, 128, 2, 8),
    _config(128, 64, 3, 8),
    _config(128, 32, 4, 8),
    _config(64, 64, 3, 4),
    _config(64, 32, 3, 4),
    _config(32, 16, 2, 4),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: tiles no longer than the sequence, and the last one alone for fp32."""
    longest = 0 if named_args["q_ptr"].dtype == torch.float32 else named_args["length"]
    return [config for config in configs if config.kwargs["BLOCK_M"] <= longest] or configs[-1:]


@triton.jit
def fold(acc, m, d, q, k_ptrs, v_ptrs, offs_m, keys, length, scale, DIAGONAL: tl.constexpr):
    """One more block of keys in the running maximum and in the two sums that are relative to it."""
    if DIAGONAL:
        inside = keys[:, None] < length
        k = tl.load(k_ptrs, mask=inside, other=0.0)
        v = tl.load(v_ptrs, mask=inside, other=0.0)
    else:
        k = tl.load(k_ptrs)
        v = tl.load(v_ptrs)
    scores = tl.dot(q, tl.trans(k), input_precision="ieee")
    if DIAGONAL:
        scores = tl.where(offs_m[:, None] >= keys[None, :], scores, -float("inf"))
    m_new = tl.maximum(m, scale * tl.max(scores, axis=1))
    p = tl.exp2(scale * scores - m_new[:, None])
    fade = tl.exp2(m - m_new)
    acc = tl.dot(p.to(v.dtype), v, acc * fade[:, None], input_precision="ieee")
    return m_new, d * fade + tl.sum(p, axis=1), acc


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, heads, length, scale,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_om,
    DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Program (h, t) owns tile t of the queries of head h, counted from the end; all heads lie on one axis."""
    first = (tl.num_programs(axis=1) - 1 - tl.program_id(axis=1)) * BLOCK_M
    index = tl.program_id(axis=0)
    batch, head = (index // heads).to(tl.int64), (index % heads).to(tl.int64)

    dims = tl.arange(0, DIM)[None, :]
    offs_m = first + tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    positions = offs_m[:, None].to(tl.int64)
    stored = offs_m[:, None] < length

    q_ptrs = q_ptr + batch * stride_qb + head * stride_qh + positions * stride_qm + dims
    q = tl.load(q_ptrs, mask=stored, other=0.0)
    k_ptrs = k_ptr + batch * stride_kb + head * stride_kh + offs_n[:, None].to(tl.int64) * stride_kn + dims
    v_ptrs = v_ptr + batch * stride_vb + head * stride_vh + offs_n[:, None].to(tl.int64) * stride_vn + dims
    k_step = tl.cast(stride_kn, tl.int64) * BLOCK_N
    v_step = tl.cast(stride_vn, tl.int64) * BLOCK_N

    m = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)
    for start in tl.range(0, first, BLOCK_N):
        acc, m, d = fold(acc, m, d, q, k_ptrs, v_ptrs, offs_m, start + offs_n, length, scale, DIAGONAL=False)
        k_ptrs += k_step
        v_ptrs += v_step
    for start in tl.range(first, tl.minimum(first + BLOCK_M, length), BLOCK_N, num_stages=1):
        acc, m, d = fold(acc, m, d, q, k_ptrs, v_ptrs, offs_m, start + offs_n, length, scale, DIAGONAL=True)
        k_ptrs += k_step
        v_ptrs += v_step

    out_ptrs = out_ptr + batch * stride_ob + head * stride_oh + positions * stride_om + dims
    tl.store(out_ptrs, (acc / d[:, None]).to(out_ptr.dtype.element_ty), mask=stored)


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v for each head, where a query sees its own key and those before it."""
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device) if out is None else out
    batch, heads, length, dim = q.shape
    grid = lambda meta: (batch * heads, triton.cdiv(length, meta["BLOCK_M"]))
    attention_kernel[grid](
        q, k, v, out, heads, length, 1.4426950408889634 / math.sqrt(dim),
        *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *out.stride()[:3], DIM=dim,
    )  # fmt: skip
    return out
