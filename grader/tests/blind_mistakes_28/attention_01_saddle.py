# gpu-programming/triton-kernels/attention.py | wrong everywhere | In attention_kernel the mask of the diagonal block is reversed: `tl.where(lanes[:, None] > lanes[None, :], -inf, scores)` hides the keys of the tile that come before the query and shows those after it (and the zeros past the end of the sequence, which get the weight of a score 0). Wrong for every length, 1 included. It should hide where the query's number is below the key's: lanes[:, None] < lanes[None, :].
"""Causal attention with an online softmax over square tiles: the keys before the tile, then the tile's own."""

import math

import torch
import triton
import triton.language as tl

# (block, stages, warps): as many keys in a step as a program has queries, so one block meets the diagonal.
CONFIGS = [
    triton.Config({"BLOCK": block}, num_stages=stages, num_warps=warps)
    for block, stages, warps in ((128, 2, 8), (64, 3, 4), (64, 2, 4), (32, 2, 4))
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: tiles no longer than the sequence, and the last one alone for fp32."""
    longest = 0 if named_args["q_ptr"].dtype == torch.float32 else named_args["length"]
    return [config for config in configs if config.kwargs["BLOCK"] <= longest] or configs[-1:]


@triton.jit
def fold(acc, m, d, scores, v):
    """acc, m and d after one more block of keys, whose scores (to the base 2) and values are given."""
    m_new = tl.maximum(m, tl.max(scores, axis=1))
    p = tl.exp2(scores - m_new[:, None])
    shrink = tl.exp2(m - m_new)
    d = d * shrink + tl.sum(p, axis=1)
    acc = tl.dot(p.to(v.dtype), v, acc * shrink[:, None], input_precision="ieee")
    return acc, m_new, d


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, heads, length, scale,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_om,
    DIM: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """A program owns BLOCK rows of one head; axis 0 counts heads, axis 1 tiles, those with the most keys first."""
    which = tl.program_id(axis=0)
    batch, head = (which // heads).to(tl.int64), (which % heads).to(tl.int64)
    first = (tl.num_programs(axis=1) - 1 - tl.program_id(axis=1)) * BLOCK
    lanes, dims = tl.arange(0, BLOCK), tl.arange(0, DIM)
    inside = first + lanes < length

    q_base = q_ptr + batch * stride_qb + head * stride_qh + first.to(tl.int64) * stride_qm
    k_base = k_ptr + batch * stride_kb + head * stride_kh
    v_base = v_ptr + batch * stride_vb + head * stride_vh
    o_base = out_ptr + batch * stride_ob + head * stride_oh + first.to(tl.int64) * stride_om
    k_at = lanes[None, :] * stride_kn + dims[:, None]  # a block of k is read transposed
    v_at = lanes[:, None] * stride_vn + dims[None, :]

    q = tl.load(q_base + lanes[:, None] * stride_qm + dims[None, :], mask=inside[:, None], other=0.0)
    m = tl.full((BLOCK,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((BLOCK,), dtype=tl.float32)
    acc = tl.zeros((BLOCK, DIM), dtype=tl.float32)

    for _start in range(0, first, BLOCK):
        k = tl.load(k_base + k_at)
        v = tl.load(v_base + v_at)
        scores = tl.dot(q, k, input_precision="ieee") * scale
        acc, m, d = fold(acc, m, d, scores, v)
        k_base += BLOCK * stride_kn
        v_base += BLOCK * stride_vn

    # The block at the diagonal has the positions of the queries themselves.
    k = tl.load(k_base + k_at, mask=inside[None, :], other=0.0)
    v = tl.load(v_base + v_at, mask=inside[:, None], other=0.0)
    scores = tl.dot(q, k, input_precision="ieee") * scale
    scores = tl.where(lanes[:, None] > lanes[None, :], -float("inf"), scores)
    acc, m, d = fold(acc, m, d, scores, v)

    result = acc / d[:, None]
    tl.store(
        o_base + lanes[:, None] * stride_om + dims[None, :],
        result.to(out_ptr.dtype.element_ty),
        mask=inside[:, None],
    )


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v for each head, where a query sees its own key and those before it."""
    if out is None:
        out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    batch, heads, length, dim = q.shape
    grid = lambda meta: (batch * heads, triton.cdiv(length, meta["BLOCK"]))
    attention_kernel[grid](
        q, k, v, out, heads, length, math.log2(math.e) / math.sqrt(dim),
        *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *out.stride()[:3], DIM=dim,
    )  # fmt: skip
    return out
