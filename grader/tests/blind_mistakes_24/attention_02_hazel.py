# gpu-programming/triton-kernels/attention.py | right | right
"""Causal attention with square tiles, from the diagonal back to the first key.

A tile of queries starts with the block of keys of the same numbers: there every query sees at least itself, so
the maximum, the sum and the result begin with finite numbers, and no -inf is ever subtracted from -inf. All blocks
before it are full. A program takes tile i from the front and tile i from the back: together they have the same
number of blocks in every program.
"""

import math

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"BLOCK": 128}, num_stages=2, num_warps=8),
    triton.Config({"BLOCK": 64}, num_stages=3, num_warps=4),
    triton.Config({"BLOCK": 64}, num_stages=2, num_warps=4),
    triton.Config({"BLOCK": 32}, num_stages=2, num_warps=4),
]


def affordable(configs, named_args, **kwargs):
    """fp32 and short sequences get the smallest tile."""
    if named_args["q_ptr"].dtype == torch.float32:
        return configs[-1:]
    return [c for c in configs if c.kwargs["BLOCK"] <= named_args["length"]] or configs[-1:]


@triton.jit
def start_of_head(ptr, batch, head, stride_b, stride_h):
    return ptr + batch * stride_b + head * stride_h


@triton.jit
def on_diagonal(q, k_head, v_head, first, length, scale, stride_kn, stride_vn, DIM: tl.constexpr, BLOCK: tl.constexpr):
    """m, d and acc of the block of keys that the tile of queries shares its numbers with."""
    lanes = tl.arange(0, BLOCK)
    dims = tl.arange(0, DIM)
    keys = first + lanes
    far = keys.to(tl.int64)
    k_t = tl.load(k_head + far[None, :] * stride_kn + dims[:, None], mask=keys[None, :] < length, other=0.0)
    v = tl.load(v_head + far[:, None] * stride_vn + dims[None, :], mask=keys[:, None] < length, other=0.0)
    scores = tl.dot(q, k_t, input_precision="ieee") * scale
    # Both count from `first`, so the lanes alone decide.
    scores = tl.where(lanes[None, :] <= lanes[:, None], scores, float("-inf"))
    m = tl.max(scores, axis=1)
    p = tl.exp2(scores - m[:, None])
    return m, tl.sum(p, axis=1), tl.dot(p.to(v.dtype), v, input_precision="ieee")


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": affordable})
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, heads, length, scale,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_om,
    DIM: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    tiles = tl.cdiv(length, BLOCK)
    pairs = tl.cdiv(tiles, 2)
    program = tl.program_id(axis=0)
    pair = program % pairs
    which = program // pairs
    batch = (which // heads).to(tl.int64)
    head = (which % heads).to(tl.int64)
    q_head = start_of_head(q_ptr, batch, head, stride_qb, stride_qh)
    k_head = start_of_head(k_ptr, batch, head, stride_kb, stride_kh)
    v_head = start_of_head(v_ptr, batch, head, stride_vb, stride_vh)
    out_head = start_of_head(out_ptr, batch, head, stride_ob, stride_oh)

    lanes = tl.arange(0, BLOCK)
    dims = tl.arange(0, DIM)
    # From `pair` in one step to tiles - 1 - pair; the middle tile of an odd number is its own partner.
    stride_of_tiles = tl.maximum(tiles - 1 - 2 * pair, 1)
    for tile in range(pair, tiles - pair, stride_of_tiles):
        first = tile * BLOCK
        queries = (first + lanes)[:, None]
        far = queries.to(tl.int64)
        q = tl.load(q_head + far * stride_qm + dims[None, :], mask=queries < length, other=0.0)
        m, d, acc = on_diagonal(q, k_head, v_head, first, length, scale, stride_kn, stride_vn, DIM, BLOCK)
        for back in range(0, first, BLOCK):
            keys = (first - BLOCK - back + lanes).to(tl.int64)
            k_t = tl.load(k_head + keys[None, :] * stride_kn + dims[:, None])
            scores = tl.dot(q, k_t, input_precision="ieee") * scale
            higher = tl.maximum(m, tl.max(scores, axis=1))
            p = tl.exp2(scores - higher[:, None])
            shrink = tl.exp2(m - higher)
            v = tl.load(v_head + keys[:, None] * stride_vn + dims[None, :])
            acc = tl.dot(p.to(v.dtype), v, acc * shrink[:, None], input_precision="ieee")
            d = d * shrink + tl.sum(p, axis=1)
            m = higher
        result = (acc / d[:, None]).to(out_ptr.dtype.element_ty)
        tl.store(out_head + far * stride_om + dims[None, :], result, mask=queries < length)


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v for each head, where a query sees its own key and those before it."""
    batch, heads, length, dim = q.shape
    if out is None:
        out = torch.empty((batch, heads, length, dim), device=q.device, dtype=q.dtype)

    def programs(meta):
        tiles = triton.cdiv(length, meta["BLOCK"])
        return (triton.cdiv(tiles, 2) * batch * heads,)

    attention_kernel[programs](
        q, k, v, out, heads, length, math.log2(math.e) / math.sqrt(dim),
        *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *out.stride()[:3],
        DIM=dim,
    )  # fmt: skip
    return out
