# gpu-programming/triton-kernels/attention.py | two mistakes | In `attention_kernel`: (1) `v_head = v_ptr + batch * stride_vb + head * stride_kh` should have `head * stride_vh`; shows with two or more heads where k and v have different strides (padded heads, k or v swapped alone). (2) `q = (q.to(tl.float32) * scale).to(q_ptr.dtype.element_ty)` rounds the scaled q to 16 bits before the product; the scores should be multiplied by scale in fp32 after `tl.dot`; shows for large scores (values huge) in fp16 and bf16.
"""Causal attention for heads of any strides: blocks of keys, one after the other, and no matrix of scores."""

import math

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"BLOCK_M": block_m, "BLOCK_N": block_n, "STAGES": stages}, num_stages=stages, num_warps=warps)
    for block_m, block_n, stages, warps in ((128, 128, 2, 8), (128, 64, 3, 8), (64, 64, 3, 4), (32, 32, 2, 4))
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: tiles no longer than the sequence, and the last one alone for fp32."""
    longest = 0 if named_args["q_ptr"].dtype == torch.float32 else named_args["length"]
    return [config for config in configs if config.kwargs["BLOCK_M"] <= longest] or configs[-1:]


@triton.jit
def load_rows(ptrs, positions, length, MASKED: tl.constexpr):
    """Rows of a matrix; where MASKED, 0 in place of those past the end of the sequence."""
    if MASKED:
        rows = tl.load(ptrs, mask=positions[:, None] < length, other=0.0)
    else:
        rows = tl.load(ptrs)
    return rows


@triton.jit
def sweep(
    acc, m, d, q, k_head, v_head, queries, begin, end, length, stride_kn, stride_vn,
    DIM: tl.constexpr, BLOCK_N: tl.constexpr, DIAGONAL: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """acc, m and d after the keys from begin to end; where DIAGONAL, some of them lie in the future."""
    block = tl.arange(0, BLOCK_N)
    dims = tl.arange(0, DIM)
    k_offs = block[:, None] * stride_kn + dims[None, :]
    v_offs = block[:, None] * stride_vn + dims[None, :]
    k_block = k_head + begin * stride_kn
    v_block = v_head + begin * stride_vn
    for start in tl.range(begin, end, BLOCK_N, num_stages=STAGES):
        keys = start + block
        k = load_rows(k_block + k_offs, keys, length, DIAGONAL)
        scores = tl.dot(q, tl.trans(k), input_precision="ieee")
        if DIAGONAL:
            scores = tl.where(queries[:, None] >= keys[None, :], scores, -float("inf"))
        m_new = tl.maximum(m, tl.max(scores, axis=1))
        p = tl.exp2(scores - m_new[:, None])
        factor = tl.exp2(m - m_new)
        d = d * factor + tl.sum(p, axis=1)
        acc = acc * factor[:, None]
        v = load_rows(v_block + v_offs, keys, length, DIAGONAL)
        acc = tl.dot(p.to(v.dtype), v, acc, input_precision="ieee")
        m = m_new
        k_block += BLOCK_N * stride_kn
        v_block += BLOCK_N * stride_vn
    return acc, m, d


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, heads, length, scale,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_om,
    DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """A program has BLOCK_M queries of one head; scale is log2(e) / sqrt(DIM)."""
    batch = (tl.program_id(axis=0) // heads).to(tl.int64)
    head = (tl.program_id(axis=0) % heads).to(tl.int64)
    first = (tl.num_programs(axis=1) - 1 - tl.program_id(axis=1)) * BLOCK_M
    queries = first + tl.arange(0, BLOCK_M)
    dims = tl.arange(0, DIM)
    exists = queries[:, None] < length
    places = queries.to(tl.int64)[:, None]

    q_head = q_ptr + batch * stride_qb + head * stride_qh
    k_head = k_ptr + batch * stride_kb + head * stride_kh
    v_head = v_ptr + batch * stride_vb + head * stride_kh
    out_head = out_ptr + batch * stride_ob + head * stride_oh

    # The factor once for each query, and not once for each of its scores.
    q = tl.load(q_head + places * stride_qm + dims[None, :], mask=exists, other=0.0)
    q = (q.to(tl.float32) * scale).to(q_ptr.dtype.element_ty)

    m = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)
    acc, m, d = sweep(
        acc, m, d, q, k_head, v_head, queries, 0, first, length, stride_kn, stride_vn,
        DIM, BLOCK_N, False, STAGES,
    )  # fmt: skip
    end = tl.minimum(first + BLOCK_M, length)
    acc, m, d = sweep(
        acc, m, d, q, k_head, v_head, queries, first, end, length, stride_kn, stride_vn,
        DIM, BLOCK_N, True, 1,
    )  # fmt: skip
    result = acc / d[:, None]
    tl.store(out_head + places * stride_om + dims[None, :], result.to(out_ptr.dtype.element_ty), mask=exists)


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v for each head, where a query sees its own key and those before it."""
    if out is None:
        out = torch.empty(q.shape, device=q.device, dtype=q.dtype)
    batch, heads, length, dim = q.shape
    grid = lambda meta: (batch * heads, triton.cdiv(length, meta["BLOCK_M"]))  # noqa: E731
    attention_kernel[grid](
        q, k, v, out, heads, length, math.log2(math.e) / math.sqrt(dim),
        *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *out.stride()[:3], DIM=dim,
    )  # fmt: skip
    return out
