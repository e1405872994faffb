# gpu-programming/triton-kernels/attention.py | everywhere | In fold with DIAGONAL, p is computed from unmasked scores and `d = d * factor + tl.sum(p, 1)` comes before `p = tl.where(visible, p, 0.0)`: the normaliser d also counts the hidden keys (future ones, and the zero scores past the end), only acc leaves them out, so rows are too small | "row i of the result = sum over j of softmax(scores)_ij v_j", "-inf for j > i" / "Set hidden keys to -inf before you take the maximum"; all inputs
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
    _config(64, 32, 2, 4),
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
        inside = keys < length
        k = tl.load(k_ptrs, mask=inside[:, None], other=0.0)
        v = tl.load(v_ptrs, mask=inside[:, None], other=0.0)
    else:
        k = tl.load(k_ptrs)
        v = tl.load(v_ptrs)
    scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
    m_new = tl.maximum(m, tl.max(scores, 1))
    p = tl.exp2(scores - m_new[:, None])
    factor = tl.exp2(m - m_new)
    d = d * factor + tl.sum(p, 1)
    if DIAGONAL:
        visible = offs_m[:, None] >= keys[None, :]
        p = tl.where(visible, p, 0.0)
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
    """out[i, :] = sum over j <= i of softmax(q k^T)[i, j] v[j, :]; a program owns BLOCK_M rows of one head.

    q, k, v and out are (batch, heads, length, DIM), of one dtype, the last dimension contiguous, any strides
    before it. scale is log2(e) / sqrt(DIM).
    """
    # BEGIN TODO 3: which queries of which head, and where its keys and values begin (about 13 lines)
    # The rows with the most keys first: what runs last is short.
    tiles = tl.cdiv(length, BLOCK_M)
    pid = tl.program_id(axis=0)
    tile = tiles - 1 - pid % tiles
    batch = (pid // tiles // heads).to(tl.int64)
    head = (pid // tiles % heads).to(tl.int64)
    first = tile * BLOCK_M
    offs_m = first + tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    dims = tl.arange(0, DIM)
    rows = offs_m.to(tl.int64)[:, None]
    q = tl.load(
        q_ptr + batch * stride_qb + head * stride_qh + rows * stride_qm + dims[None, :],
        mask=rows < length, other=0.0,
    )  # fmt: skip
    k_ptrs = k_ptr + batch * stride_kb + head * stride_kh + offs_n.to(tl.int64)[:, None] * stride_kn + dims[None, :]
    v_ptrs = v_ptr + batch * stride_vb + head * stride_vh + offs_n.to(tl.int64)[:, None] * stride_vn + dims[None, :]
    # END TODO 3
    m = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)
    # BEGIN TODO 4: the keys before the tile, then those at the diagonal, none after it (about 8 lines)
    # The second loop without stages: with both pipelined, ptxas lets products wait for each other (C7515).
    for start in tl.range(0, first, BLOCK_N):
        acc, m, d = fold(acc, m, d, q, k_ptrs, v_ptrs, offs_m, start + offs_n, length, scale, False)
        k_ptrs += BLOCK_N * stride_kn
        v_ptrs += BLOCK_N * stride_vn
    for start in tl.range(first, min(first + BLOCK_M, length), BLOCK_N, num_stages=1):
        acc, m, d = fold(acc, m, d, q, k_ptrs, v_ptrs, offs_m, start + offs_n, length, scale, True)
        k_ptrs += BLOCK_N * stride_kn
        v_ptrs += BLOCK_N * stride_vn
    # END TODO 4
    # BEGIN TODO 5: divide by d and store the rows (about 2 lines)
    out_ptrs = out_ptr + batch * stride_ob + head * stride_oh + rows * stride_om + dims[None, :]
    tl.store(out_ptrs, (acc / d[:, None]).to(out_ptr.dtype.element_ty), mask=rows < length)
    # END TODO 5


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v for each head, where a query sees its own key and those before it.

    q, k and v are (batch, heads, length, dim), bf16, fp16 or fp32, dim 16, 32, 64 or 128 and contiguous, any
    length from 1 on; the result goes to `out`, like q, where one is given. After Dao, arXiv:2307.08691.
    """
    out = torch.empty_like(q) if out is None else out
    # BEGIN TODO 6: one program for each tile of queries of each head (about 5 lines)
    batch, heads, length, dim = q.shape
    grid = lambda meta: (triton.cdiv(length, meta["BLOCK_M"]) * batch * heads,)  # noqa: E731
    attention_kernel[grid](
        q, k, v, out, heads, length, math.log2(math.e) / math.sqrt(dim),
        *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *out.stride()[:3], DIM=dim,
    )  # fmt: skip
    # END TODO 6
    return out
