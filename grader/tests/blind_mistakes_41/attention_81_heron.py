# gpu-programming/triton-kernels/attention.py | wrong everywhere | In `attention`, `softmax_scale = q.size(2) ** -0.5` takes the length of the sequence; it should be `q.size(3) ** -0.5`, the dim. Every case is wrong but those with one key or with length equal to dim (weights too flat for long sequences, too sharp for short ones).
"""Causal attention without the matrix of scores: online softmax over blocks of keys, autotuned."""

import math

import torch
import triton
import triton.language as tl

LOG2_E = math.log2(math.e)

CONFIGS = [
    triton.Config({"BLOCK_M": rows, "BLOCK_N": keys}, num_stages=stages, num_warps=warps)
    for rows, keys, stages, warps in ((128, 128, 2, 8), (128, 64, 3, 8), (64, 64, 3, 4), (32, 32, 2, 4))
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: tiles no longer than the sequence, and the last one alone for fp32."""
    longest = 0 if named_args["q_ptr"].dtype == torch.float32 else named_args["length"]
    return [config for config in configs if config.kwargs["BLOCK_M"] <= longest] or configs[-1:]


@triton.jit
def absorb(acc, top, denom, scores, v, scale):
    """The three sums with one more block of keys: its scores, not yet scaled, and its values."""
    new_top = tl.maximum(top, tl.max(scores, axis=1) * scale)
    p = tl.exp2(scores * scale - new_top[:, None])
    shrink = tl.exp2(top - new_top)
    acc = tl.dot(p.to(v.dtype), v, acc * shrink[:, None], input_precision="ieee")
    denom = denom * shrink + tl.sum(p, axis=1)
    return acc, new_top, denom


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, batch, heads, length, scale,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_om,
    DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """One program owns BLOCK_M queries of one head; programs with the most keys have the lowest numbers."""
    pid = tl.program_id(axis=0)
    pairs = batch * heads
    pair = pid % pairs
    b, h = (pair // heads).to(tl.int64), (pair % heads).to(tl.int64)
    first = (tl.cdiv(length, BLOCK_M) - 1 - pid // pairs) * BLOCK_M

    dims = tl.arange(0, DIM)
    local_m = tl.arange(0, BLOCK_M)
    local_n = tl.arange(0, BLOCK_N)
    queries = first + local_m
    exists = queries[:, None] < length

    q_tile = q_ptr + b * stride_qb + h * stride_qh + first.to(tl.int64) * stride_qm
    q = tl.load(q_tile + local_m[:, None] * stride_qm + dims[None, :], mask=exists, other=0.0)

    # One pointer each moves along the keys; the offsets of a block stay. Keys are loaded transposed.
    k_here = k_ptr + b * stride_kb + h * stride_kh
    v_here = v_ptr + b * stride_vb + h * stride_vh
    k_offs = dims[:, None] + local_n[None, :] * stride_kn
    v_offs = local_n[:, None] * stride_vn + dims[None, :]

    top = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    denom = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)

    for _ in range(0, first, BLOCK_N):
        k = tl.load(k_here + k_offs)
        scores = tl.dot(q, k, input_precision="ieee")
        v = tl.load(v_here + v_offs)
        acc, top, denom = absorb(acc, top, denom, scores, v, scale)
        k_here += BLOCK_N * stride_kn
        v_here += BLOCK_N * stride_vn

    for start in tl.range(first, tl.minimum(first + BLOCK_M, length), BLOCK_N, num_stages=1):
        keys = start + local_n
        k = tl.load(k_here + k_offs, mask=keys[None, :] < length, other=0.0)
        scores = tl.dot(q, k, input_precision="ieee")
        scores = tl.where(queries[:, None] >= keys[None, :], scores, -float("inf"))
        v = tl.load(v_here + v_offs, mask=keys[:, None] < length, other=0.0)
        acc, top, denom = absorb(acc, top, denom, scores, v, scale)
        k_here += BLOCK_N * stride_kn
        v_here += BLOCK_N * stride_vn

    out_tile = out_ptr + b * stride_ob + h * stride_oh + first.to(tl.int64) * stride_om
    result = (acc / denom[:, None]).to(out_ptr.dtype.element_ty)
    tl.store(out_tile + local_m[:, None] * stride_om + dims[None, :], result, mask=exists)


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v for each head, where a query sees its own key and those before it.

    q, k and v are (batch, heads, length, dim), bf16, fp16 or fp32, dim 16, 32, 64 or 128 and contiguous, any
    length from 1 on; the result goes to `out`, like q, where one is given.
    """
    if out is None:
        out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    batch, heads, length, dim = q.shape
    softmax_scale = q.size(2) ** -0.5
    grid = lambda meta: (triton.cdiv(length, meta["BLOCK_M"]) * batch * heads,)
    attention_kernel[grid](
        q, k, v, out, batch, heads, length, LOG2_E * softmax_scale,
        q.stride(0), q.stride(1), q.stride(2), k.stride(0), k.stride(1), k.stride(2),
        v.stride(0), v.stride(1), v.stride(2), out.stride(0), out.stride(1), out.stride(2),
        DIM=dim,
    )  # fmt: skip
    return out
