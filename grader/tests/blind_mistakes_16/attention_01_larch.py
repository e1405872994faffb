# gpu-programming/triton-kernels/attention.py | wrong everywhere | In fold the scores of hidden keys are set to 0.0 in tl.where, and not to -inf, so keys of the future and past the end get the weight exp(0 - m) in the sum d, and future ones in acc. It should be -float("inf").
"""Causal attention without the matrix of scores: online softmax over blocks of keys, autotuned."""

import math

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, num_stages, num_warps):
    """One candidate: queries of a program and keys of a step, powers of two, pipeline depth and warps."""
    return triton.Config({"BLOCK_M": block_m, "BLOCK_N": block_n}, num_stages=num_stages, num_warps=num_warps)


# BEGIN TODO 1: the tile shapes the autotuner tries (about 8 lines)
CONFIGS = [
    _config(128, 128, 2, 8),
    _config(128, 64, 3, 8),
    _config(64, 64, 3, 4),
    _config(32, 32, 3, 4),
    _config(16, 16, 2, 4),
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
    if DIAGONAL:
        k = tl.load(k_ptrs, mask=keys[:, None] < length, other=0.0)
        v = tl.load(v_ptrs, mask=keys[:, None] < length, other=0.0)
    else:
        k = tl.load(k_ptrs)
        v = tl.load(v_ptrs)
    scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
    if DIAGONAL:
        scores = tl.where(offs_m[:, None] >= keys[None, :], scores, 0.0)
    m_new = tl.maximum(m, tl.max(scores, axis=1))
    p = tl.exp2(scores - m_new[:, None])
    factor = tl.exp2(m - m_new)
    d = d * factor + tl.sum(p, axis=1)
    acc = tl.dot(p.to(v.dtype), v, acc * factor[:, None], input_precision="ieee")
    return acc, m_new, d
    # END TODO 2


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, heads, length, scale,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_om,
    DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """out[i, :] = sum over j <= i of softmax(q k^T)[i, j] v[j, :]; a program owns BLOCK_M rows of one head."""
    # BEGIN TODO 3: which queries of which head, and where its keys and values begin (about 13 lines)
    which = tl.program_id(axis=0).to(tl.int64)
    batch, head = which // heads, which % heads
    # The rows with the most keys first: what runs last is short.
    start = (tl.num_programs(axis=1) - 1 - tl.program_id(axis=1)) * BLOCK_M
    offs_m = start + tl.arange(0, BLOCK_M)
    rows = offs_m.to(tl.int64)[:, None]
    offs_n = tl.arange(0, BLOCK_N)
    cols = tl.arange(0, DIM)[None, :]
    q_ptrs = q_ptr + batch * stride_qb + head * stride_qh + rows * stride_qm + cols
    k_head = k_ptr + batch * stride_kb + head * stride_kh + cols
    v_head = v_ptr + batch * stride_vb + head * stride_vh + cols
    q = tl.load(q_ptrs, mask=rows < length, other=0.0)
    # END TODO 3
    m = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)
    # BEGIN TODO 4: the keys before the tile, then those at the diagonal, none after it (about 8 lines)
    for n in range(0, start, BLOCK_N):
        keys = n + offs_n
        at = keys.to(tl.int64)[:, None]
        acc, m, d = fold(
            acc, m, d, q, k_head + at * stride_kn, v_head + at * stride_vn, offs_m, keys, length, scale, False
        )
    for n in tl.range(start, tl.minimum(start + BLOCK_M, length), BLOCK_N, num_stages=1):
        keys = n + offs_n
        at = keys.to(tl.int64)[:, None]
        acc, m, d = fold(
            acc, m, d, q, k_head + at * stride_kn, v_head + at * stride_vn, offs_m, keys, length, scale, True
        )
    # END TODO 4
    # BEGIN TODO 5: divide by d and store the rows (about 2 lines)
    out_ptrs = out_ptr + batch * stride_ob + head * stride_oh + rows * stride_om + cols
    tl.store(out_ptrs, (acc / d[:, None]).to(out_ptr.dtype.element_ty), mask=rows < length)
    # END TODO 5


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v for each head, where a query sees its own key and those before it."""
    out = torch.empty(q.shape, device=q.device, dtype=q.dtype) if out is None else out
    # BEGIN TODO 6: one program for each tile of queries of each head (about 5 lines)
    batch, heads, length, dim = q.shape
    scale = 1.4426950408889634 / math.sqrt(dim)
    attention_kernel[lambda meta: (batch * heads, triton.cdiv(length, meta["BLOCK_M"]))](
        q, k, v, out, heads, length, scale,
        *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *out.stride()[:3], DIM=dim,
    )  # fmt: skip
    # END TODO 6
    return out
