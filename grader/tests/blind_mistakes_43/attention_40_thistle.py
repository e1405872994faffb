# gpu-programming/triton-kernels/attention.py | two mistakes | (1) In `softmax_step`, `alpha = tl.exp(m - m_new)` should be `tl.exp2(m - m_new)`, as scores and m are to the base 2: earlier blocks count too little as soon as a later block raises the maximum of a row; shows in sequences longer than one block of keys (32 or 64). (2) In `attend`, `v_tile = wide[:, None] * stride_kn + dims[None, :]` should have `stride_vn`: inside of a block v is read with the row stride of k; shows where k and v have different strides along the length (v or k with swapped heads, padded heads), also in sequences of one block.
"""Causal attention, one tile of queries a program: a loop over earlier keys, and one over the diagonal."""

import math

import torch
import triton
import triton.language as tl

# (queries of a program, keys of a step, pipeline stages, warps)
SHAPES = ((128, 64, 3, 8), (64, 64, 3, 4), (64, 32, 3, 4), (32, 32, 2, 4))
CONFIGS = [
    triton.Config(
        {"BLOCK_M": block_m, "BLOCK_N": block_n, "STAGES": stages}, num_stages=stages, num_warps=warps
    )
    for block_m, block_n, stages, warps in SHAPES
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: tiles no longer than the sequence, and the last one alone for fp32."""
    if named_args["q_ptr"].dtype == torch.float32:
        return configs[-1:]
    return [config for config in configs if config.kwargs["BLOCK_M"] <= named_args["length"]] or configs[-1:]


@triton.jit
def softmax_step(scores, m, d):
    """Weights of a block of scores to the base 2, the factor of what came before, and the new m and d."""
    m_new = tl.maximum(m, tl.max(scores, axis=1))
    p = tl.exp2(scores - m_new[:, None])
    alpha = tl.exp(m - m_new)
    return p, alpha, m_new, d * alpha + tl.sum(p, axis=1)


@triton.jit
def attend(
    acc, m, d, q, k_head, v_head, queries, begin, end, length, scale, stride_kn, stride_vn,
    DIM: tl.constexpr, BLOCK_N: tl.constexpr, DIAGONAL: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """acc, m and d after the keys from begin to end; on the DIAGONAL some of them are hidden, or do not exist."""
    lanes = tl.arange(0, BLOCK_N)
    wide = lanes.to(tl.int64)
    dims = tl.arange(0, DIM)
    k_tile = wide[None, :] * stride_kn + dims[:, None]
    v_tile = wide[:, None] * stride_kn + dims[None, :]
    for start in tl.range(begin, end, BLOCK_N, num_stages=STAGES):
        keys = start + lanes
        k_ptrs = k_head + start * stride_kn + k_tile
        v_ptrs = v_head + start * stride_vn + v_tile
        if DIAGONAL:
            k = tl.load(k_ptrs, mask=keys[None, :] < length, other=0.0)
            v = tl.load(v_ptrs, mask=keys[:, None] < length, other=0.0)
        else:
            k = tl.load(k_ptrs)
            v = tl.load(v_ptrs)
        scores = tl.dot(q, k, input_precision="ieee") * scale
        if DIAGONAL:
            scores = tl.where(queries[:, None] >= keys[None, :], scores, -float("inf"))
        p, alpha, m, d = softmax_step(scores, m, d)
        acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None], input_precision="ieee")
    return acc, m, d


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, heads, all_heads, length, scale,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_om,
    DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """out[i, :] = sum over j <= i of softmax(q k^T)[i, j] v[j, :]; a program owns BLOCK_M rows of one head.

    q, k, v and out are (batch, heads, length, DIM), of one dtype, the last dimension contiguous, any strides
    before it. scale is log2(e) / sqrt(DIM). Programs of one tile of all heads follow each other, those of the
    last tile, which have the most keys, before all others.
    """
    pid = tl.program_id(axis=0).to(tl.int64)
    first = (tl.cdiv(length, BLOCK_M) - 1 - pid // all_heads) * BLOCK_M
    batch, head = pid % all_heads // heads, pid % all_heads % heads
    k_head = k_ptr + batch * stride_kb + head * stride_kh
    v_head = v_ptr + batch * stride_vb + head * stride_vh
    queries = first + tl.arange(0, BLOCK_M)
    dims = tl.arange(0, DIM)
    exist = queries[:, None] < length
    q_tile = queries[:, None] * stride_qm + dims[None, :]
    q = tl.load(q_ptr + batch * stride_qb + head * stride_qh + q_tile, mask=exist, other=0.0)

    m = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)
    acc, m, d = attend(
        acc, m, d, q, k_head, v_head, queries, 0, first, length, scale, stride_kn, stride_vn,
        DIM, BLOCK_N, DIAGONAL=False, STAGES=STAGES,
    )  # fmt: skip
    acc, m, d = attend(
        acc, m, d, q, k_head, v_head, queries, first, tl.minimum(first + BLOCK_M, length), length, scale,
        stride_kn, stride_vn, DIM, BLOCK_N, DIAGONAL=True, STAGES=1,
    )  # fmt: skip

    out_tile = queries[:, None] * stride_om + dims[None, :]
    result = (acc / d[:, None]).to(out_ptr.dtype.element_ty)
    tl.store(out_ptr + batch * stride_ob + head * stride_oh + out_tile, result, mask=exist)


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v for each head, where a query sees its own key and those before it.

    q, k and v are (batch, heads, length, dim), bf16, fp16 or fp32, dim 16, 32, 64 or 128 and contiguous, any
    length from 1 on; the result goes to `out`, like q, where one is given. After Dao, arXiv:2307.08691.
    """
    if out is None:
        out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    batch, heads, length, dim = q.shape
    grid = lambda meta: (triton.cdiv(length, meta["BLOCK_M"]) * batch * heads,)
    attention_kernel[grid](
        q, k, v, out, heads, batch * heads, length, math.log2(math.e) / math.sqrt(dim),
        *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *out.stride()[:3], DIM=dim,
    )  # fmt: skip
    return out
