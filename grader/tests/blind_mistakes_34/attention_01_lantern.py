# gpu-programming/triton-kernels/attention.py | right | right
"""Causal attention by square tiles: the tile on the diagonal starts the sums, then the keys are walked backwards."""

import math

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"BLOCK": 128}, num_stages=2, num_warps=8),
    triton.Config({"BLOCK": 64}, num_stages=3, num_warps=4),
    triton.Config({"BLOCK": 32}, num_stages=2, num_warps=4),
]


def fitting(configs, named_args, **kwargs):
    """Tiles no longer than the sequence; fp32, which has no tensor cores here, takes the smallest."""
    if named_args["q_ptr"].dtype == torch.float32:
        return configs[-1:]
    return [config for config in configs if config.kwargs["BLOCK"] <= named_args["length"]] or configs[-1:]


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, pairs, heads, length, scale,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_om,
    DIM: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """A program owns BLOCK queries of one of the `pairs` of batch and head; scale is log2(e) / sqrt(DIM)."""
    pid = tl.program_id(axis=0)
    # All heads of the last tile come first: those have the most keys.
    tile = tl.cdiv(length, BLOCK) - 1 - pid // pairs
    batch = (pid % pairs // heads).to(tl.int64)
    head = (pid % pairs % heads).to(tl.int64)

    lanes, dims = tl.arange(0, BLOCK), tl.arange(0, DIM)
    first = (tile * BLOCK).to(tl.int64)
    inside = (first + lanes < length)[:, None]

    q_tile = q_ptr + batch * stride_qb + head * stride_qh + first * stride_qm
    k_tile = k_ptr + batch * stride_kb + head * stride_kh + first * stride_kn
    v_tile = v_ptr + batch * stride_vb + head * stride_vh + first * stride_vn
    out_tile = out_ptr + batch * stride_ob + head * stride_oh + first * stride_om
    k_offs = lanes[:, None] * stride_kn + dims[None, :]
    v_offs = lanes[:, None] * stride_vn + dims[None, :]

    q = tl.load(q_tile + lanes[:, None] * stride_qm + dims[None, :], mask=inside, other=0.0)
    k = tl.load(k_tile + k_offs, mask=inside, other=0.0)
    v = tl.load(v_tile + v_offs, mask=inside, other=0.0)

    # Queries and keys of this tile begin at the same position, so the lanes compare like positions. Every query
    # finds its own key here: there is no row without a maximum.
    scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
    scores = tl.where(lanes[:, None] >= lanes[None, :], scores, -float("inf"))
    m = tl.max(scores, axis=1)
    p = tl.exp2(scores - m[:, None])
    d = tl.sum(p, axis=1)
    acc = tl.dot(p.to(v.dtype), v, input_precision="ieee")

    for _ in range(0, tile):
        k_tile += -BLOCK * stride_kn
        v_tile += -BLOCK * stride_vn
        keys = tl.load(k_tile + k_offs)
        logits = tl.dot(q, tl.trans(keys), input_precision="ieee") * scale
        highest = tl.maximum(m, tl.max(logits, axis=1))
        weights = tl.exp2(logits - highest[:, None])
        shrink = tl.exp2(m - highest)
        d = d * shrink + tl.sum(weights, axis=1)
        values = tl.load(v_tile + v_offs)
        acc = tl.dot(weights.to(values.dtype), values, acc * shrink[:, None], input_precision="ieee")
        m = highest

    tl.store(out_tile + lanes[:, None] * stride_om + dims[None, :], acc / d[:, None], mask=inside)


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v for each head, where a query sees its own key and those before it."""
    batch, heads, length, dim = q.shape
    if out is None:
        out = torch.empty((batch, heads, length, dim), dtype=q.dtype, device=q.device)
    pairs = batch * heads
    strides = [t.stride(axis) for t in (q, k, v, out) for axis in range(3)]
    attention_kernel[lambda meta: (pairs * triton.cdiv(length, meta["BLOCK"]),)](
        q, k, v, out, pairs, heads, length, math.log2(math.e) / math.sqrt(dim), *strides, DIM=dim
    )
    return out
