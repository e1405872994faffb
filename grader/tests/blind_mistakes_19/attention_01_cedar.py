# gpu-programming/triton-kernels/attention.py | right | right: BLOCK_N may be larger than BLOCK_M, the unmasked loop ends at the last multiple of BLOCK_N before the tile; heuristics say whether the length is a multiple of both tile sizes.
"""Causal attention, any pair of tile sizes: keys before the tile in whole blocks without a mask, the rest with one."""

import math

import torch
import triton
import triton.language as tl

PAIRS = {
    (128, 64): (3, 8),
    (64, 128): (2, 8),
    (64, 64): (3, 4),
    (128, 32): (3, 8),
    (32, 128): (2, 4),
    (64, 16): (2, 4),
    (16, 64): (2, 4),
    (32, 32): (2, 4),
}
CONFIGS = [
    triton.Config({"BLOCK_M": pair[0], "BLOCK_N": pair[1]}, num_stages=depth[0], num_warps=depth[1])
    for pair, depth in PAIRS.items()
]


def _choose(configs, named_args, **kwargs):
    length = named_args["length"]
    if named_args["q_ptr"].dtype == torch.float32:
        return [c for c in configs if c.kwargs["BLOCK_M"] * c.kwargs["BLOCK_N"] <= 1024]
    fitting = [c for c in configs if c.kwargs["BLOCK_M"] <= length and c.kwargs["BLOCK_N"] <= 2 * length]
    return fitting or configs[-2:]


@triton.jit
def softmax_step(acc, top, den, scores, values, scale):
    new_top = tl.maximum(top, scale * tl.max(scores, axis=1))
    p = tl.exp2(scale * scores - new_top[:, None])
    shrink = tl.exp2(top - new_top)
    den = den * shrink + tl.sum(p, axis=1)
    acc = tl.dot(p.to(values.dtype), values, acc * shrink[:, None], input_precision="ieee")
    return acc, new_top, den


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": _choose})
@triton.heuristics(
    {"EVEN": lambda args: args["length"] % args["BLOCK_M"] == 0 and args["length"] % args["BLOCK_N"] == 0}
)
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, heads, length, pairs, scale,
    q_b, q_h, q_m, k_b, k_h, k_n, v_b, v_h, v_n, o_b, o_h, o_m,
    DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(0)
    tile = tl.cdiv(length, BLOCK_M) - 1 - pid // pairs
    batch = (pid % pairs // heads).to(tl.int64)
    head = (pid % pairs % heads).to(tl.int64)
    first = tile * BLOCK_M
    queries = first + tl.arange(0, BLOCK_M)
    dims = tl.arange(0, DIM)
    exists = (queries < length)[:, None]

    q_ptrs = q_ptr + batch * q_b + head * q_h + queries.to(tl.int64)[:, None] * q_m + dims[None, :]
    if EVEN:
        q = tl.load(q_ptrs)
    else:
        q = tl.load(q_ptrs, mask=exists, other=0.0)
    k_base = k_ptr + batch * k_b + head * k_h
    v_base = v_ptr + batch * v_b + head * v_h

    top = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    den = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)

    free = first // BLOCK_N * BLOCK_N
    for n in range(0, free, BLOCK_N):
        keys = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
        k = tl.load(k_base + keys[None, :] * k_n + dims[:, None])
        scores = tl.dot(q, k, input_precision="ieee")
        v = tl.load(v_base + keys[:, None] * v_n + dims[None, :])
        acc, top, den = softmax_step(acc, top, den, scores, v, scale)

    for n in tl.range(free, tl.minimum(first + BLOCK_M, length), BLOCK_N, num_stages=1):
        keys = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
        if EVEN:
            k = tl.load(k_base + keys[None, :] * k_n + dims[:, None])
            v = tl.load(v_base + keys[:, None] * v_n + dims[None, :])
        else:
            k = tl.load(k_base + keys[None, :] * k_n + dims[:, None], mask=(keys < length)[None, :], other=0.0)
            v = tl.load(v_base + keys[:, None] * v_n + dims[None, :], mask=(keys < length)[:, None], other=0.0)
        scores = tl.dot(q, k, input_precision="ieee")
        scores = tl.where(queries[:, None] >= keys[None, :], scores, -float("inf"))
        acc, top, den = softmax_step(acc, top, den, scores, v, scale)

    o_ptrs = out_ptr + batch * o_b + head * o_h + queries.to(tl.int64)[:, None] * o_m + dims[None, :]
    tl.store(o_ptrs, (acc / den[:, None]).to(out_ptr.dtype.element_ty), mask=exists)


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v, causal, for each head of each batch."""
    batch, heads, length, dim = q.shape
    if out is None:
        out = torch.empty((batch, heads, length, dim), device=q.device, dtype=q.dtype)
    pairs = batch * heads

    def grid(meta):
        return (triton.cdiv(length, meta["BLOCK_M"]) * pairs,)

    attention_kernel[grid](
        q, k, v, out, heads, length, pairs, math.log2(math.e) / math.sqrt(dim),
        q.stride(0), q.stride(1), q.stride(2), k.stride(0), k.stride(1), k.stride(2),
        v.stride(0), v.stride(1), v.stride(2), out.stride(0), out.stride(1), out.stride(2),
        DIM=dim,
    )  # fmt: skip
    return out
