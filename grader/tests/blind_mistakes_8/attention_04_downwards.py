# gpu-programming/triton-kernels/attention.py | two mistakes | (1) The strides are taken from (q, k, k, out), so v is read with the strides of k; shows where v is laid out otherwise. (2) `weight = weight + tl.sum(e, axis=1)` does not multiply the old sum by `shrink` when the maximum rises.
"""Causal attention without the matrix of scores: online softmax over blocks of keys, autotuned."""

import math

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, num_stages, num_warps):
    """One candidate: queries of a program and keys of a step, powers of two, pipeline depth and warps."""
    return triton.Config({"BLOCK_M": block_m, "BLOCK_N": block_n}, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 128, 2, 8),
    _config(128, 64, 3, 8),
    _config(64, 64, 3, 4),
    _config(32, 16, 2, 4),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: tiles no longer than the sequence, and the last one alone for fp32."""
    # Exact fp32 runs without tensor cores, where a large tile unrolls into thousands of instructions.
    longest = 0 if named_args["q_ptr"].dtype == torch.float32 else named_args["length"]
    return [config for config in configs if config.kwargs["BLOCK_M"] <= longest] or configs[-1:]


@triton.jit
def lines(base, at, stride, size, DIM: tl.constexpr):
    """Rows `at` of a (size, DIM) matrix, zeros where there is no such row."""
    where = base + at.to(tl.int64)[:, None] * stride + tl.arange(0, DIM)[None, :]
    return tl.load(where, mask=(at < size)[:, None], other=0.0)


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, length, scale,
    sqb, sqh, sqm, skb, skh, skn, svb, svh, svn, sob, soh, som,
    DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Queries of one tile, from their own keys down to key 0: each row meets its diagonal in the first blocks.

    The grid is (tiles, heads, batch). scale is 1 / sqrt(DIM).
    """
    first = tl.program_id(0) * BLOCK_M
    head = tl.program_id(1).to(tl.int64)
    batch = tl.program_id(2).to(tl.int64)
    query = first + tl.arange(0, BLOCK_M)
    q = lines(q_ptr + batch * sqb + head * sqh, query, sqm, length, DIM)
    k_head = k_ptr + batch * skb + head * skh
    v_head = v_ptr + batch * svb + head * svh

    top = tl.full((BLOCK_M,), -1.0e30, dtype=tl.float32)
    weight = tl.zeros((BLOCK_M,), dtype=tl.float32)
    values = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)
    for key0 in range(first + BLOCK_M - BLOCK_N, -1, -BLOCK_N):
        key = key0 + tl.arange(0, BLOCK_N)
        k = lines(k_head, key, skn, length, DIM)
        v = lines(v_head, key, svn, length, DIM)
        s = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        seen = query[:, None] >= key[None, :]
        higher = tl.maximum(top, tl.max(tl.where(seen, s, -1.0e30), axis=1))
        e = tl.where(seen, tl.exp(s - higher[:, None]), 0.0)
        shrink = tl.exp(top - higher)
        values = tl.dot(e.to(v.dtype), v, values * shrink[:, None], input_precision="ieee")
        weight = weight + tl.sum(e, axis=1)
        top = higher
    spot = out_ptr + batch * sob + head * soh + query.to(tl.int64)[:, None] * som + tl.arange(0, DIM)[None, :]
    tl.store(spot, (values / weight[:, None]).to(out_ptr.dtype.element_ty), mask=(query < length)[:, None])


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v for each head, where a query sees its own key and those before it."""
    if out is None:
        out = torch.empty(q.shape, device=q.device, dtype=q.dtype)
    batch, heads, length, dim = q.shape
    strides = [stride for t in (q, k, k, out) for stride in t.stride()[:3]]
    attention_kernel[lambda meta: (triton.cdiv(length, meta["BLOCK_M"]), heads, batch)](
        q, k, v, out, length, 1 / math.sqrt(dim), *strides, DIM=dim
    )
    return out
