# gpu-programming/triton-kernels/attention.py | wrong everywhere | `fold` ends with `return acc, d, m_new` while both calls unpack `acc, m, d = fold(...)`, so maximum and sum are exchanged; it should be `return acc, m_new, d`.
"""Causal attention without the matrix of scores: online softmax over blocks of keys, autotuned."""

import math

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, num_stages, num_warps):
    """One candidate: queries of a program and keys of a step, powers of two, pipeline depth and warps."""
    return triton.Config({"BLOCK_M": block_m, "BLOCK_N": block_n}, num_stages=num_stages, num_warps=num_warps)


# BEGIN TODO 1: the tile shapes the autotuner tries (about 8 lines)
# Scores and result of a tile are in registers together: 128 queries want 8 warps. BLOCK_N divides BLOCK_M.
CONFIGS = [
    _config(128, 128, 2, 8),
    _config(128, 64, 3, 8),
    _config(64, 64, 3, 4),
    _config(32, 32, 2, 4),
]
# END TODO 1


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: tiles no longer than the sequence, and the last one alone for fp32."""
    # Exact fp32 runs without tensor cores, where a large tile unrolls into thousands of instructions.
    longest = 0 if named_args["q_ptr"].dtype == torch.float32 else named_args["length"]
    return [config for config in configs if config.kwargs["BLOCK_M"] <= longest] or configs[-1:]


@triton.jit
def fold(acc, m, d, q, k_ptrs, v_ptrs, offs_m, keys, length, scale, DIAGONAL: tl.constexpr):
    """The sums acc of p * v and d of p with one more block of keys, p = exp2(scale * scores - m), and m."""
    # BEGIN TODO 2: fold one block of keys into acc, m and d (about 14 lines)
    # Only where the block meets the diagonal may keys lie in the future, or past the end of the sequence.
    if DIAGONAL:
        k = tl.load(k_ptrs, mask=keys[None, :] < length, other=0.0)
        v = tl.load(v_ptrs, mask=keys[:, None] < length, other=0.0)
    else:
        k = tl.load(k_ptrs)
        v = tl.load(v_ptrs)
    scores = tl.dot(q, k, input_precision="ieee")
    if DIAGONAL:
        scores = tl.where(offs_m[:, None] >= keys[None, :], scores, -float("inf"))
    m_new = tl.maximum(m, scale * tl.max(scores, axis=1))
    p = tl.exp2(scale * scores - m_new[:, None])
    factor = tl.exp2(m - m_new)
    acc = tl.dot(p.to(v.dtype), v, acc * factor[:, None], input_precision="ieee")
    d = d * factor + tl.sum(p, axis=1)
    return acc, d, m_new
    # END TODO 2


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, heads, length, scale,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_om,
    DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """out[i, :] = sum over j <= i of softmax(q k^T)[i, j] v[j, :]; a program owns BLOCK_M rows of one head.

    q, k, v and out are (batch, heads, length, DIM), of one dtype, the last dimension contiguous, any strides
    before it. scale is log2(e) / sqrt(DIM).
    """
    # BEGIN TODO 3: which queries of which head, and where its keys and values begin (about 13 lines)
    # The rows with the most keys first: what runs last is short.
    start = (tl.num_programs(axis=1) - 1 - tl.program_id(axis=1)) * BLOCK_M
    batch = (tl.program_id(axis=0) // heads).to(tl.int64)
    head = (tl.program_id(axis=0) % heads).to(tl.int64)
    offs_m = start + tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    dims = tl.arange(0, DIM)
    rows = offs_m.to(tl.int64)[:, None]
    exists = offs_m[:, None] < length
    q_ptrs = q_ptr + batch * stride_qb + head * stride_qh + rows * stride_qm + dims[None, :]
    q = tl.load(q_ptrs, mask=exists, other=0.0)
    k_head = k_ptr + batch * stride_kb + head * stride_kh
    v_head = v_ptr + batch * stride_vb + head * stride_vh
    # END TODO 3
    m = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)
    # BEGIN TODO 4: the keys before the tile, then those at the diagonal, none after it (about 8 lines)
    # The second loop without stages: with both pipelined, ptxas lets products wait for each other (C7515).
    for first in tl.range(0, start, BLOCK_N):
        keys = first + offs_n
        far = keys.to(tl.int64)
        k_ptrs = k_head + far[None, :] * stride_kn + dims[:, None]
        v_ptrs = v_head + far[:, None] * stride_vn + dims[None, :]
        acc, m, d = fold(acc, m, d, q, k_ptrs, v_ptrs, offs_m, keys, length, scale, False)
    for first in tl.range(start, tl.minimum(start + BLOCK_M, length), BLOCK_N, num_stages=1):
        keys = first + offs_n
        far = keys.to(tl.int64)
        k_ptrs = k_head + far[None, :] * stride_kn + dims[:, None]
        v_ptrs = v_head + far[:, None] * stride_vn + dims[None, :]
        acc, m, d = fold(acc, m, d, q, k_ptrs, v_ptrs, offs_m, keys, length, scale, True)
    # END TODO 4
    # BEGIN TODO 5: divide by d and store the rows (about 2 lines)
    out_ptrs = out_ptr + batch * stride_ob + head * stride_oh + rows * stride_om + dims[None, :]
    tl.store(out_ptrs, (acc / d[:, None]).to(out_ptr.dtype.element_ty), mask=exists)
    # END TODO 5


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v for each head, where a query sees its own key and those before it.

    q, k and v are (batch, heads, length, dim), bf16, fp16 or fp32, dim 16, 32, 64 or 128 and contiguous, any
    length from 1 on; the result goes to `out`, like q, where one is given. After Dao, arXiv:2307.08691.
    """
    out = torch.empty(q.shape, device=q.device, dtype=q.dtype) if out is None else out
    # BEGIN TODO 6: one program for each tile of queries of each head (about 5 lines)
    batch, heads, length, dim = q.shape
    grid = lambda meta: (batch * heads, triton.cdiv(length, meta["BLOCK_M"]))  # noqa: E731
    attention_kernel[grid](
        q, k, v, out, heads, length, math.log2(math.e) / math.sqrt(dim),
        *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *out.stride()[:3], DIM=dim,
    )  # fmt: skip
    # END TODO 6
    return out
