# gpu-programming/triton-kernels/attention.py | right | Two passes over the keys instead of a rescaled accumulator: the first finds maximum and sum of each row, the second sums p * v relative to the final maximum, with the natural exp and the blocks at the diagonal first.
"""Causal attention in two passes over the keys: first the softmax's maximum and sum, then the values."""

import math
import typing

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, num_stages, num_warps):
    """One candidate: queries of a program and keys of a step, powers of two, pipeline depth and warps."""
    return triton.Config({"BLOCK_M": block_m, "BLOCK_N": block_n}, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 64, 3, 8),
    _config(64, 64, 3, 4),
    _config(64, 32, 3, 4),
    _config(32, 16, 2, 4),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: tiles no longer than the sequence, and the last one alone for fp32."""
    # Exact fp32 runs without tensor cores, where a large tile unrolls into thousands of instructions.
    longest = 0 if named_args["q_ptr"].dtype == torch.float32 else named_args["length"]
    return [config for config in configs if config.kwargs["BLOCK_M"] <= longest] or configs[-1:]


@triton.jit
def rows_of(ptr, positions, length, stride, DIM: tl.constexpr):
    """The rows of one head at these positions, 0 past the end of the sequence."""
    pointers = ptr + positions.to(tl.int64)[:, None] * stride + tl.arange(0, DIM)[None, :]
    return tl.load(pointers, mask=(positions < length)[:, None], other=0.0)


@triton.jit
def scores_of(q, k, queries, keys, scale):
    """The scaled scores of a block, -inf where a key is later than the query."""
    scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
    return tl.where(keys[None, :] > queries[:, None], -float("inf"), scores)


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, heads, length, scale,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_om,
    DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """A program owns BLOCK_M queries of one head. scale is 1 / sqrt(DIM)."""
    batch = (tl.program_id(axis=1) // heads).to(tl.int64)
    head = (tl.program_id(axis=1) % heads).to(tl.int64)
    queries = tl.program_id(axis=0) * BLOCK_M + tl.arange(0, BLOCK_M)
    k_head = k_ptr + batch * stride_kb + head * stride_kh
    v_head = v_ptr + batch * stride_vb + head * stride_vh
    q = rows_of(q_ptr + batch * stride_qb + head * stride_qh, queries, length, stride_qm, DIM)
    n_blocks = tl.cdiv(tl.minimum((tl.program_id(axis=0) + 1) * BLOCK_M, length), BLOCK_N)

    # First pass, from the first key on: each query sees a key in the first block.
    top = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    total = tl.zeros((BLOCK_M,), dtype=tl.float32)
    for block in range(0, n_blocks):
        keys = block * BLOCK_N + tl.arange(0, BLOCK_N)
        k = rows_of(k_head, keys, length, stride_kn, DIM)
        scores = scores_of(q, k, queries, keys, scale)
        higher = tl.maximum(top, tl.max(scores, axis=1))
        total = total * tl.exp(top - higher) + tl.sum(tl.exp(scores - higher[:, None]), axis=1)
        top = higher

    # Second pass, from the diagonal back: the maximum is final, nothing is rescaled.
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)
    for block in range(0, n_blocks):
        keys = (n_blocks - 1 - block) * BLOCK_N + tl.arange(0, BLOCK_N)
        k = rows_of(k_head, keys, length, stride_kn, DIM)
        v = rows_of(v_head, keys, length, stride_vn, DIM)
        p = tl.exp(scores_of(q, k, queries, keys, scale) - top[:, None])
        acc = tl.dot(p.to(v.dtype), v, acc, input_precision="ieee")

    out_ptr += batch * stride_ob + head * stride_oh
    pointers = out_ptr + queries.to(tl.int64)[:, None] * stride_om + tl.arange(0, DIM)[None, :]
    tl.store(pointers, (acc / total[:, None]).to(out_ptr.dtype.element_ty), mask=(queries < length)[:, None])


def attention(q, k, v, *, out: typing.Optional[torch.Tensor] = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v for each head, where a query sees its own key and those before it.

    q, k and v are (batch, heads, length, dim), bf16, fp16 or fp32, dim 16, 32, 64 or 128 and contiguous, any
    length from 1 on; the result goes to `out`, like q, where one is given.
    """
    batch, heads, length, dim = q.shape
    if out is None:
        out = torch.empty((batch, heads, length, dim), device=q.device, dtype=q.dtype)

    def grid(meta):
        return (triton.cdiv(length, meta["BLOCK_M"]), batch * heads)

    attention_kernel[grid](
        q, k, v, out, heads, length, 1 / math.sqrt(dim),
        q.stride(0), q.stride(1), q.stride(2),
        k.stride(0), k.stride(1), k.stride(2),
        v.stride(0), v.stride(1), v.stride(2),
        out.stride(0), out.stride(1), out.stride(2),
        DIM=dim,
    )  # fmt: skip
    return out
