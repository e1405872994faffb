# gpu-programming/triton-kernels/attention.py | wrong everywhere | In attention_kernel the scores of hidden keys are set to 0 instead of -inf: `scores = tl.where(rows[:, None] >= keys[None, :], scores, 0.0)`. So every later key of the diagonal block, and every key past the end, gets the weight exp(0 - m) instead of 0: d is too large and values of future keys come into acc. Shows for nearly every length, dim, dtype and layout, length 1 included (only the rows whose own key is the last of its block are right). It should be -float("inf").
"""Causal attention, one pass over the keys for each tile of queries."""

import math

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"BLOCK_M": queries, "BLOCK_N": keys}, num_stages=stages, num_warps=warps)
    for queries, keys, stages, warps in (
        (128, 128, 2, 8),
        (128, 64, 3, 8),
        (64, 64, 3, 4),
        (32, 32, 2, 4),
    )
]


def usable(configs, named_args, **kwargs):
    """Tiles that a sequence fills; exact fp32 takes the smallest."""
    if named_args["q_ptr"].dtype == torch.float32:
        return configs[-1:]
    full = [one for one in configs if one.kwargs["BLOCK_M"] <= named_args["length"]]
    return full if full else configs[-1:]


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": usable})
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, heads, length, scale,
    stride_qb, stride_qh, stride_qm,
    stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn,
    stride_ob, stride_oh, stride_om,
    DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """BLOCK_M rows of the result of one head; scale is log2(e) / sqrt(DIM).

    The programs of the last tile of every head come first, those of the first tile last.
    """
    pid = tl.program_id(axis=0)
    tiles = tl.cdiv(length, BLOCK_M)
    pairs = tl.num_programs(axis=0) // tiles  # batch * heads
    first = (tiles - 1 - pid // pairs) * BLOCK_M
    pair = pid % pairs
    batch = (pair // heads).to(tl.int64)
    head = (pair % heads).to(tl.int64)

    rows = first + tl.arange(0, BLOCK_M)
    dims = tl.arange(0, DIM)
    far_rows = rows[:, None].to(tl.int64)
    q_head = q_ptr + batch * stride_qb + head * stride_qh
    k_head = k_ptr + batch * stride_kb + head * stride_kh
    v_head = v_ptr + batch * stride_vb + head * stride_vh
    out_head = out_ptr + batch * stride_ob + head * stride_oh
    q = tl.load(q_head + far_rows * stride_qm + dims[None, :], mask=rows[:, None] < length, other=0.0)

    best = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    weight = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)
    for start in tl.range(0, tl.minimum(first + BLOCK_M, length), BLOCK_N):
        keys = start + tl.arange(0, BLOCK_N)
        far_keys = keys[:, None].to(tl.int64)
        inside = keys[:, None] < length
        k = tl.load(k_head + far_keys * stride_kn + dims[None, :], mask=inside, other=0.0)
        scores = tl.dot(q, tl.trans(k), input_precision="ieee")
        scores = tl.where(rows[:, None] >= keys[None, :], scores, 0.0)
        new_best = tl.maximum(best, scale * tl.max(scores, axis=1))
        p = tl.exp2(scale * scores - new_best[:, None])
        fade = tl.exp2(best - new_best)
        v = tl.load(v_head + far_keys * stride_vn + dims[None, :], mask=inside, other=0.0)
        weight = weight * fade + tl.sum(p, axis=1)
        acc = tl.dot(p.to(v.dtype), v, acc * fade[:, None], input_precision="ieee")
        best = new_best

    result = acc / weight[:, None]
    tl.store(
        out_head + far_rows * stride_om + dims[None, :],
        result.to(out_ptr.dtype.element_ty),
        mask=rows[:, None] < length,
    )


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v for each head, where a query sees its own key and those before it."""
    if out is None:
        out = torch.empty_like(q, memory_format=torch.contiguous_format)
    batch, heads, length, dim = q.shape
    strides = [step for tensor in (q, k, v, out) for step in tensor.stride()[:3]]
    grid = lambda meta: (batch * heads * triton.cdiv(length, meta["BLOCK_M"]),)
    scale = math.log2(math.e) / math.sqrt(dim)
    attention_kernel[grid](q, k, v, out, heads, length, scale, *strides, DIM=dim)
    return out
