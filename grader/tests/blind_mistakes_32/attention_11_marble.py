# gpu-programming/triton-kernels/attention.py | right | right
"""Causal attention in square tiles: the tile on the diagonal starts the sums, those to its left follow."""

import math

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"BLOCK": block}, num_stages=stages, num_warps=warps)
    for block, stages, warps in ((128, 2, 8), (64, 3, 4), (64, 2, 4), (32, 2, 4))
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: tiles no longer than the sequence, and the last one alone for fp32."""
    length = named_args["length"] if named_args["q_ptr"].dtype != torch.float32 else 0
    return [config for config in configs if config.kwargs["BLOCK"] <= length] or configs[-1:]


@triton.jit
def begin(q, k, v, lanes, scale):
    """acc, m and d of the tile on the diagonal, where each query has at least its own key."""
    scores = scale * tl.dot(q, k, input_precision="ieee")
    scores = tl.where(lanes[:, None] >= lanes[None, :], scores, -float("inf"))
    m = tl.max(scores, axis=1)
    p = tl.exp2(scores - m[:, None])
    return tl.dot(p.to(v.dtype), v, input_precision="ieee"), m, tl.sum(p, axis=1)


@triton.jit
def proceed(acc, m, d, q, k, v, scale):
    """acc, m and d with one more tile, all of whose keys are seen by all queries."""
    scores = scale * tl.dot(q, k, input_precision="ieee")
    larger = tl.maximum(m, tl.max(scores, axis=1))
    p = tl.exp2(scores - larger[:, None])
    fade = tl.exp2(m - larger)
    acc = tl.dot(p.to(v.dtype), v, acc * fade[:, None], input_precision="ieee")
    return acc, larger, d * fade + tl.sum(p, axis=1)


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, heads, length, scale,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_om,
    DIM: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """A program owns BLOCK queries of one head: tile t has t tiles of keys to its left, the last tile most."""
    pid = tl.program_id(axis=0)
    tiles = tl.cdiv(length, BLOCK)
    tile = tiles - 1 - pid % tiles
    batch = (pid // tiles // heads).to(tl.int64)
    head = (pid // tiles % heads).to(tl.int64)
    first = (tile * BLOCK).to(tl.int64)

    lanes, dims = tl.arange(0, BLOCK), tl.arange(0, DIM)
    inside = tile * BLOCK + lanes < length
    q_tile = q_ptr + batch * stride_qb + head * stride_qh + first * stride_qm
    out_tile = out_ptr + batch * stride_ob + head * stride_oh + first * stride_om
    k_head = k_ptr + batch * stride_kb + head * stride_kh
    v_head = v_ptr + batch * stride_vb + head * stride_vh
    k_offs = lanes[None, :] * stride_kn + dims[:, None]
    v_offs = lanes[:, None] * stride_vn + dims[None, :]

    q = tl.load(q_tile + lanes[:, None] * stride_qm + dims[None, :], mask=inside[:, None], other=0.0)
    own_k = tl.load(k_head + first * stride_kn + k_offs, mask=inside[None, :], other=0.0)
    own_v = tl.load(v_head + first * stride_vn + v_offs, mask=inside[:, None], other=0.0)
    acc, m, d = begin(q, own_k, own_v, lanes, scale)
    for left in range(tile):
        k = tl.load(k_head + k_offs)
        v = tl.load(v_head + v_offs)
        acc, m, d = proceed(acc, m, d, q, k, v, scale)
        k_head += BLOCK * stride_kn
        v_head += BLOCK * stride_vn

    result = acc / d[:, None]
    tl.store(
        out_tile + lanes[:, None] * stride_om + dims[None, :],
        result.to(out_ptr.dtype.element_ty),
        mask=inside[:, None],
    )


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v for each head, where a query sees its own key and those before it."""
    batch, heads, length, dim = q.shape
    if out is None:
        out = torch.empty_like(q, memory_format=torch.contiguous_format)
    strides = [stride for tensor in (q, k, v, out) for stride in tensor.stride()[:3]]
    grid = lambda meta: (batch * heads * triton.cdiv(length, meta["BLOCK"]),)
    scale = 1.0 / (math.log(2.0) * math.sqrt(dim))
    attention_kernel[grid](q, k, v, out, heads, length, scale, *strides, DIM=dim)
    return out
