# gpu-programming/triton-kernels/attention.py | right | right
"""Causal attention: one loop over the keys that a tile of queries may see, with a running maximum."""

import math

import torch
import triton
import triton.language as tl

CHOICES = [
    triton.Config({"QUERIES": 128, "KEYS": 128}, num_stages=2, num_warps=8),
    triton.Config({"QUERIES": 128, "KEYS": 64}, num_stages=3, num_warps=8),
    triton.Config({"QUERIES": 64, "KEYS": 64}, num_stages=3, num_warps=4),
    triton.Config({"QUERIES": 64, "KEYS": 32}, num_stages=2, num_warps=4),
]


def sensible(configs, named_args, **kwargs):
    """Tiles no longer than the sequence; for fp32 the last one alone."""
    if named_args["q_ptr"].dtype == torch.float32:
        return configs[-1:]
    return [c for c in configs if c.kwargs["QUERIES"] <= named_args["length"]] or configs[-1:]


@triton.autotune(configs=CHOICES, key=["length", "DIM"], prune_configs_by={"early_config_prune": sensible})
@triton.jit
def causal_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, pairs, heads, length, scale,
    q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row, o_batch, o_head, o_row,
    DIM: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(axis=0)
    first = (tl.cdiv(length, QUERIES) - 1 - pid // pairs) * QUERIES  # the tiles with the most keys first
    pair = pid % pairs
    batch = (pair // heads).to(tl.int64)
    head = (pair % heads).to(tl.int64)
    q_ptr += batch * q_batch + head * q_head
    k_ptr += batch * k_batch + head * k_head
    v_ptr += batch * v_batch + head * v_head
    o_ptr += batch * o_batch + head * o_head

    lanes = tl.arange(0, DIM)[None, :]
    queries = (first + tl.arange(0, QUERIES)).to(tl.int64)[:, None]
    q = tl.load(q_ptr + queries * q_row + lanes, mask=queries < length, other=0.0)

    top = tl.full((QUERIES, 1), -float("inf"), dtype=tl.float32)
    weight = tl.zeros((QUERIES, 1), dtype=tl.float32)
    result = tl.zeros((QUERIES, DIM), dtype=tl.float32)
    for begin in range(0, tl.minimum(first + QUERIES, length), KEYS):
        keys = begin + tl.arange(0, KEYS).to(tl.int64)
        real = keys[:, None] < length
        k = tl.load(k_ptr + keys[:, None] * k_row + lanes, mask=real, other=0.0)
        v = tl.load(v_ptr + keys[:, None] * v_row + lanes, mask=real, other=0.0)
        scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        scores = tl.where(keys[None, :] > queries, -float("inf"), scores)
        higher = tl.maximum(top, tl.max(scores, axis=1)[:, None])
        p = tl.exp2(scores - higher)
        fade = tl.exp2(top - higher)
        weight = weight * fade + tl.sum(p, axis=1)[:, None]
        result = tl.dot(p.to(v.dtype), v, result * fade, input_precision="ieee")
        top = higher
    tl.store(o_ptr + queries * o_row + lanes, (result / weight).to(o_ptr.dtype.element_ty), mask=queries < length)


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v for each head, where a query sees its own key and those before it."""
    batch, heads, length, dim = q.shape
    if out is None:
        out = torch.empty((batch, heads, length, dim), device=q.device, dtype=q.dtype)
    strides = [t.stride(axis) for t in (q, k, v, out) for axis in range(3)]
    pairs = batch * heads

    def grid(meta):
        return (triton.cdiv(length, meta["QUERIES"]) * pairs,)

    causal_kernel[grid](q, k, v, out, pairs, heads, length, math.log2(math.e) / math.sqrt(dim), *strides, DIM=dim)
    return out
