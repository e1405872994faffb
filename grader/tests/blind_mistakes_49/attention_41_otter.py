# gpu-programming/triton-kernels/attention.py | right | Unusual: the blocks at the diagonal come first, in ascending order (each query sees the first key of its tile, so m is finite at once), then the full blocks from right to left down to key 0; maxima and sums by `tl.reduce` with own combine functions.
"""Causal attention from the diagonal to the left: the blocks with hidden keys first, autotuned."""

import math

import torch
import triton
import triton.language as tl

# (BLOCK_M, BLOCK_N, stages, warps); BLOCK_N divides BLOCK_M, and the last one is for fp32 as well.
TILES = ((128, 64, 3, 8), (128, 32, 4, 8), (64, 64, 3, 4), (64, 32, 2, 4))
CONFIGS = [
    triton.Config({"BLOCK_M": block_m, "BLOCK_N": block_n}, num_stages=stages, num_warps=warps)
    for block_m, block_n, stages, warps in TILES
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: tiles no longer than the sequence, and the last one alone for fp32."""
    if named_args["q_ptr"].dtype == torch.float32:
        return configs[-1:]
    return [config for config in configs if config.kwargs["BLOCK_M"] <= named_args["length"]] or configs[-1:]


@triton.jit
def larger(a, b):
    return tl.maximum(a, b)


@triton.jit
def plus(a, b):
    return a + b


@triton.jit
def add_values(acc, m, d, scores, v, scale):
    """acc, m and d with the values v of a block of keys, weighted by exp2(scale * scores)."""
    top = tl.maximum(m, scale * tl.reduce(scores, 1, larger))
    p = tl.exp2(scale * scores - top[:, None])
    factor = tl.exp2(m - top)
    acc = tl.dot(p.to(v.dtype), v, acc * factor[:, None], input_precision="ieee")
    return acc, top, d * factor + tl.reduce(p, 1, plus)


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, pairs, heads, length, scale,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_om,
    DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """A program owns BLOCK_M queries of one of `pairs` heads of a batch entry; the last tiles run first.

    Each query sees the first key of its tile, so from the first block of the diagonal on m is finite, and no
    order of the blocks after it matters. scale is log2(e) / sqrt(DIM).
    """
    pid = tl.program_id(axis=0)
    first = (tl.cdiv(length, BLOCK_M) - 1 - pid // pairs) * BLOCK_M
    pair = pid % pairs
    batch, head = (pair // heads).to(tl.int64), (pair % heads).to(tl.int64)

    dims = tl.arange(0, DIM)
    queries = first + tl.arange(0, BLOCK_M)
    rows, exists = queries.to(tl.int64)[:, None], (queries < length)[:, None]
    q_head = q_ptr + batch * stride_qb + head * stride_qh
    q = tl.load(q_head + rows * stride_qm + dims[None, :], mask=exists, other=0.0)

    lanes = tl.arange(0, BLOCK_N)
    k_head = k_ptr + batch * stride_kb + head * stride_kh
    v_head = v_ptr + batch * stride_vb + head * stride_vh

    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)
    m = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((BLOCK_M,), dtype=tl.float32)
    for start in tl.range(first, tl.minimum(first + BLOCK_M, length), BLOCK_N, num_stages=1):
        keys = start + lanes
        far, present = keys.to(tl.int64), keys < length
        k = tl.load(k_head + dims[:, None] + (far * stride_kn)[None, :], mask=present[None, :], other=0.0)
        v = tl.load(v_head + (far * stride_vn)[:, None] + dims[None, :], mask=present[:, None], other=0.0)
        scores = tl.dot(q, k, input_precision="ieee")
        scores = tl.where(queries[:, None] < keys[None, :], -float("inf"), scores)
        acc, m, d = add_values(acc, m, d, scores, v, scale)
    for done in range(0, first, BLOCK_N):
        far = (first - BLOCK_N - done + lanes).to(tl.int64)
        k = tl.load(k_head + dims[:, None] + (far * stride_kn)[None, :])
        v = tl.load(v_head + (far * stride_vn)[:, None] + dims[None, :])
        acc, m, d = add_values(acc, m, d, tl.dot(q, k, input_precision="ieee"), v, scale)

    out_head = out_ptr + batch * stride_ob + head * stride_oh
    result = (acc / d[:, None]).to(out_ptr.dtype.element_ty)
    tl.store(out_head + rows * stride_om + dims[None, :], result, mask=exists)


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v for each head, where a query sees its own key and those before it.

    q, k and v are (batch, heads, length, dim), bf16, fp16 or fp32, dim 16, 32, 64 or 128 and contiguous, any
    length from 1 on; the result goes to `out`, like q, where one is given.
    """
    batch, heads, length, dim = q.shape
    if out is None:
        out = torch.empty((batch, heads, length, dim), dtype=q.dtype, device=q.device)
    pairs = batch * heads
    strides = [tensor.stride(axis) for tensor in (q, k, v, out) for axis in range(3)]

    def programs(meta):
        return (pairs * triton.cdiv(length, meta["BLOCK_M"]),)

    attention_kernel[programs](
        q, k, v, out, pairs, heads, length, math.log2(math.e) / math.sqrt(dim), *strides, DIM=dim
    )  # fmt: skip
    return out
