# gpu-programming/triton-kernels/attention.py | wrong everywhere | fold: `tl.sum(p, axis=0)` sums p over the queries (the rows) instead of over the keys; as all configs have BLOCK_M = BLOCK_N the shape fits and nothing complains. d of a row is the sum of a column of weights, so every row is off by a factor of its own, in every case, also with one key (there the rows past the end are counted as well). Should be `tl.sum(p, axis=1)`
"""Causal attention without the matrix of scores, in square blocks, autotuned."""

import math

import torch
import triton
import triton.language as tl


def _config(block, num_stages, num_warps):
    """One candidate: as many keys in a step as a program has queries, so one block is on the diagonal."""
    return triton.Config({"BLOCK_M": block, "BLOCK_N": block}, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 2, 8),
    _config(64, 2, 4),
    _config(64, 3, 4),
    _config(32, 2, 4),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: tiles no longer than the sequence, and the last one alone for fp32."""
    longest = 0 if named_args["q_ptr"].dtype == torch.float32 else named_args["length"]
    return [config for config in configs if config.kwargs["BLOCK_M"] <= longest] or configs[-1:]


@triton.jit
def fold(acc, m, d, q, k_ptrs, v_ptrs, offs_m, keys, length, scale, DIAGONAL: tl.constexpr):
    """The sums acc of p * v and d of p with one more block of keys, p = exp2(scale * scores - m), and m."""
    if DIAGONAL:
        valid = (keys < length)[:, None]
        k = tl.load(k_ptrs, mask=valid, other=0.0)
        v = tl.load(v_ptrs, mask=valid, other=0.0)
        scores = scale * tl.dot(q, k.T, input_precision="ieee")
        scores = tl.where(offs_m[:, None] >= keys[None, :], scores, float("-inf"))
    else:
        k = tl.load(k_ptrs)
        v = tl.load(v_ptrs)
        scores = scale * tl.dot(q, k.T, input_precision="ieee")
    m_new = tl.maximum(m, tl.max(scores, axis=1))
    alpha = tl.exp2(m - m_new)
    p = tl.exp2(scores - m_new[:, None])
    d = d * alpha + tl.sum(p, axis=0)
    acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None], input_precision="ieee")
    return acc, m_new, d


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, heads, length, scale,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_om,
    DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """out[i, :] = sum over j <= i of softmax(q k^T)[i, j] v[j, :]; a program owns BLOCK_M rows of one head.

    Axis 0 of the grid counts the heads of all batches, axis 1 the tiles, the last one first. scale is
    log2(e) / sqrt(DIM).
    """
    batch = (tl.program_id(axis=0) // heads).to(tl.int64)
    head = (tl.program_id(axis=0) % heads).to(tl.int64)
    first = (tl.num_programs(axis=1) - 1 - tl.program_id(axis=1)) * BLOCK_M
    offs_m = first + tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    cols = tl.arange(0, DIM)[None, :]
    q_ptr += batch * stride_qb + head * stride_qh
    k_ptr += batch * stride_kb + head * stride_kh
    v_ptr += batch * stride_vb + head * stride_vh
    out_ptr += batch * stride_ob + head * stride_oh
    q = tl.load(q_ptr + offs_m[:, None] * stride_qm + cols, mask=offs_m[:, None] < length, other=0.0)
    k_ptrs = k_ptr + offs_n[:, None] * stride_kn + cols
    v_ptrs = v_ptr + offs_n[:, None] * stride_vn + cols

    m = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)
    for start in range(0, first, BLOCK_N):
        acc, m, d = fold(acc, m, d, q, k_ptrs, v_ptrs, offs_m, start + offs_n, length, scale, False)
        k_ptrs += BLOCK_N * stride_kn
        v_ptrs += BLOCK_N * stride_vn
    # The pointers have arrived at the one block that the diagonal crosses.
    acc, m, d = fold(acc, m, d, q, k_ptrs, v_ptrs, offs_m, first + offs_n, length, scale, True)

    result = acc / d[:, None]
    tl.store(
        out_ptr + offs_m[:, None] * stride_om + cols,
        result.to(out_ptr.dtype.element_ty),
        mask=offs_m[:, None] < length,
    )


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v for each head, where a query sees its own key and those before it."""
    batch, heads, length, dim = q.shape
    if out is None:
        out = q.new_empty((batch, heads, length, dim))
    q_b, q_h, q_m, _ = q.stride()
    k_b, k_h, k_n, _ = k.stride()
    v_b, v_h, v_n, _ = v.stride()
    o_b, o_h, o_m, _ = out.stride()

    def grid(meta):
        return batch * heads, triton.cdiv(length, meta["BLOCK_M"])

    attention_kernel[grid](
        q, k, v, out, heads, length, math.log2(math.e) * dim**-0.5,
        q_b, q_h, q_m, k_b, k_h, k_n, v_b, v_h, v_n, o_b, o_h, o_m,
        DIM=dim,
    )  # fmt: skip
    return out
