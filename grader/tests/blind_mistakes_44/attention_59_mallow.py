# gpu-programming/triton-kernels/attention.py | two mistakes | (1) `new_top = tl.maximum(top, tl.max(scores, axis=1))` in `absorb` lacks the factor: `tl.max(scores, axis=1) * scale`, as `p` is `exp2(scores * scale - new_top)`. Fp32 and bf16 with ordinary values stay right; in fp16 p underflows or overflows (most with dim 64 and 128), and with large scores of either sign (huge, rising or far below 0) every dtype gives NaN, inf or lost digits. (2) In the launch in `attention` the third stride of v is `k.stride(2)`; it should be `v.stride(2)`. Shows, in any dtype, where the positions of k and v lie differently far apart (padded heads, only one of both swapped).
"""Causal attention, block of keys by block of keys, with one function for both kinds of blocks."""

import math

import torch
import triton
import triton.language as tl


def _candidate(queries, keys, num_stages, num_warps):
    return triton.Config({"QUERIES": queries, "KEYS": keys}, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _candidate(128, 64, 2, 8),
    _candidate(128, 64, 3, 8),
    _candidate(64, 64, 3, 4),
    _candidate(64, 32, 2, 4),
]


def fitting(configs, named_args, **kwargs):
    """Tiles that the sequence fills at least once, and the last one alone for fp32 or a short sequence."""
    exact = named_args["q_ptr"].dtype == torch.float32
    longest = 0 if exact else named_args["length"]
    return [config for config in configs if config.kwargs["QUERIES"] <= longest] or configs[-1:]


@triton.jit
def absorb(acc, top, sums, q, k_ptrs, v_ptrs, query, key, length, scale, FULL: tl.constexpr):
    """One more block of keys: acc and sums are relative to 2^top."""
    if FULL:
        k = tl.load(k_ptrs)
        v = tl.load(v_ptrs)
        scores = tl.dot(q, tl.trans(k), input_precision="ieee")
    else:
        exists = key[:, None] < length
        k = tl.load(k_ptrs, mask=exists, other=0.0)
        v = tl.load(v_ptrs, mask=exists, other=0.0)
        scores = tl.dot(q, tl.trans(k), input_precision="ieee")
        scores = tl.where(query[:, None] >= key[None, :], scores, -float("inf"))
    new_top = tl.maximum(top, tl.max(scores, axis=1))
    shrink = tl.exp2(top - new_top)
    p = tl.exp2(scores * scale - new_top[:, None])
    sums = sums * shrink + tl.sum(p, axis=1)
    acc = tl.dot(p.to(v.dtype), v, acc * shrink[:, None], input_precision="ieee")
    return acc, new_top, sums


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, heads, length, scale,
    q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row, out_batch, out_head, out_row,
    DIM: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    """QUERIES rows of one head; scale is log2(e) / sqrt(DIM)."""
    pid = tl.program_id(axis=0)
    tiles = tl.cdiv(length, QUERIES)
    first = (tiles - 1 - pid % tiles) * QUERIES  # those with the most keys first
    batch = (pid // tiles // heads).to(tl.int64)
    head = (pid // tiles % heads).to(tl.int64)
    q_at = q_ptr + batch * q_batch + head * q_head
    k_at = k_ptr + batch * k_batch + head * k_head
    v_at = v_ptr + batch * v_batch + head * v_head
    out_at = out_ptr + batch * out_batch + head * out_head

    query = first + tl.arange(0, QUERIES)
    lane = tl.arange(0, KEYS)
    dims = tl.arange(0, DIM)[None, :]
    far = query.to(tl.int64)[:, None]
    q = tl.load(q_at + far * q_row + dims, mask=query[:, None] < length, other=0.0)
    k_tile = lane[:, None] * k_row + dims
    v_tile = lane[:, None] * v_row + dims

    acc = tl.zeros((QUERIES, DIM), dtype=tl.float32)
    top = tl.full((QUERIES,), -float("inf"), dtype=tl.float32)
    sums = tl.zeros((QUERIES,), dtype=tl.float32)
    for start in range(0, first, KEYS):
        acc, top, sums = absorb(
            acc, top, sums, q, k_at + k_tile, v_at + v_tile, query, start + lane, length, scale, True
        )
        k_at += KEYS * k_row
        v_at += KEYS * v_row
    for start in tl.range(first, tl.minimum(first + QUERIES, length), KEYS, num_stages=1):
        acc, top, sums = absorb(
            acc, top, sums, q, k_at + k_tile, v_at + v_tile, query, start + lane, length, scale, False
        )
        k_at += KEYS * k_row
        v_at += KEYS * v_row

    result = acc / sums[:, None]
    tl.store(
        out_at + far * out_row + dims, result.to(out_ptr.dtype.element_ty), mask=query[:, None] < length
    )


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Attention of (batch, heads, length, dim) tensors where a query sees its own key and those before it.

    The last axis is contiguous; the result goes to `out`, or else to a new contiguous tensor.
    """
    if out is None:
        out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    batch, heads, length, dim = q.shape
    scale = math.log2(math.e) / math.sqrt(dim)

    def grid(meta):
        return (triton.cdiv(length, meta["QUERIES"]) * batch * heads,)

    attention_kernel[grid](
        q, k, v, out, heads, length, scale,
        q.stride(0), q.stride(1), q.stride(2),
        k.stride(0), k.stride(1), k.stride(2),
        v.stride(0), v.stride(1), k.stride(2),
        out.stride(0), out.stride(1), out.stride(2),
        DIM=dim,
    )  # fmt: skip
    return out
