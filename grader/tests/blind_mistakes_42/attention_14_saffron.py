# gpu-programming/triton-kernels/attention.py | corner | `HIDDEN = tl.constexpr(-1.0e4)`, used in `accumulate` (`scores = tl.where(keys[None, :] <= queries[:, None], scores, HIDDEN)`), should be -inf. Shows only where the visible scores q·k lie below (or near) -10000, as in the cases of values "below": hidden keys then get all the weight.
"""Causal attention with the online softmax, on a grid of tiles, heads and batches; keys are loaded as columns."""

import math

import torch
import triton
import triton.language as tl

HIDDEN = tl.constexpr(-1.0e4)  # the score of a key that a query may not see


def _config(block_m, block_n, num_stages, num_warps):
    """One candidate: queries of a program and keys of a step, powers of two, pipeline depth and warps."""
    return triton.Config({"BLOCK_M": block_m, "BLOCK_N": block_n}, num_stages=num_stages, num_warps=num_warps)


# BLOCK_N divides BLOCK_M: the keys before a tile are whole blocks.
CONFIGS = [_config(128, 128, 2, 8), _config(128, 64, 3, 8), _config(64, 64, 3, 4), _config(32, 32, 2, 4)]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: tiles no longer than the sequence, and the last one alone for fp32."""
    longest = 0 if named_args["q_ptr"].dtype == torch.float32 else named_args["length"]
    return [config for config in configs if config.kwargs["BLOCK_M"] <= longest] or configs[-1:]


@triton.jit
def accumulate(acc, m, d, q, kt_ptr, v_ptr, kt_offsets, v_offsets, keys, queries, length, scale, EDGE: tl.constexpr):
    """acc, m and d with one more block of keys; EDGE: some of them are later than some query, or do not exist."""
    if EDGE:
        kt = tl.load(kt_ptr + kt_offsets, mask=keys[None, :] < length, other=0.0)
    else:
        kt = tl.load(kt_ptr + kt_offsets)
    scores = tl.dot(q, kt, input_precision="ieee")
    if EDGE:
        scores = tl.where(keys[None, :] <= queries[:, None], scores, HIDDEN)
    new_m = tl.maximum(m, scale * tl.max(scores, axis=1))
    p = tl.exp2(scale * scores - new_m[:, None])
    shrink = tl.exp2(m - new_m)
    if EDGE:
        v = tl.load(v_ptr + v_offsets, mask=keys[:, None] < length, other=0.0)
    else:
        v = tl.load(v_ptr + v_offsets)
    acc = tl.dot(p.to(v.dtype), v, acc * shrink[:, None], input_precision="ieee")
    return acc, new_m, d * shrink + tl.sum(p, axis=1)


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, length, scale,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_om,
    DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """A program owns BLOCK_M queries of one head; the last tile, with the most keys, is program 0.

    Tensors are (batch, heads, length, DIM), the last dimension contiguous; scale is log2(e) / sqrt(DIM).
    """
    tile = tl.num_programs(axis=0) - 1 - tl.program_id(axis=0)
    head = tl.program_id(axis=1).to(tl.int64)
    batch = tl.program_id(axis=2).to(tl.int64)
    first = tile * BLOCK_M
    queries = first + tl.arange(0, BLOCK_M)
    lanes = tl.arange(0, BLOCK_N)
    dims = tl.arange(0, DIM)

    q_ptr += batch * stride_qb + head * stride_qh
    q_offsets = queries[:, None].to(tl.int64) * stride_qm + dims[None, :]
    q = tl.load(q_ptr + q_offsets, mask=queries[:, None] < length, other=0.0)

    kt_ptr = k_ptr + batch * stride_kb + head * stride_kh
    kt_offsets = dims[:, None] + lanes[None, :] * stride_kn
    v_ptr += batch * stride_vb + head * stride_vh
    v_offsets = lanes[:, None] * stride_vn + dims[None, :]

    m = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)
    for start in range(0, first, BLOCK_N):
        acc, m, d = accumulate(
            acc, m, d, q, kt_ptr, v_ptr, kt_offsets, v_offsets, start + lanes, queries, length, scale, EDGE=False
        )
        kt_ptr += BLOCK_N * stride_kn
        v_ptr += BLOCK_N * stride_vn
    for start in tl.range(first, tl.minimum(first + BLOCK_M, length), BLOCK_N, num_stages=1):
        acc, m, d = accumulate(
            acc, m, d, q, kt_ptr, v_ptr, kt_offsets, v_offsets, start + lanes, queries, length, scale, EDGE=True
        )
        kt_ptr += BLOCK_N * stride_kn
        v_ptr += BLOCK_N * stride_vn

    out_ptr += batch * stride_ob + head * stride_oh
    out_offsets = queries[:, None].to(tl.int64) * stride_om + dims[None, :]
    result = (acc / d[:, None]).to(out_ptr.dtype.element_ty)
    tl.store(out_ptr + out_offsets, result, mask=queries[:, None] < length)


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v for each head, where a query sees its own key and those before it.

    q, k and v are (batch, heads, length, dim), bf16, fp16 or fp32, dim 16, 32, 64 or 128 and contiguous, any
    length from 1 on; the result goes to `out`, like q, where one is given.
    """
    batch, heads, length, dim = q.shape
    if out is None:
        out = torch.empty((batch, heads, length, dim), device=q.device, dtype=q.dtype)
    grid = lambda meta: (triton.cdiv(length, meta["BLOCK_M"]), heads, batch)  # noqa: E731
    attention_kernel[grid](
        q, k, v, out, length, math.log2(math.e) / math.sqrt(dim),
        q.stride(0), q.stride(1), q.stride(2), k.stride(0), k.stride(1), k.stride(2),
        v.stride(0), v.stride(1), v.stride(2), out.stride(0), out.stride(1), out.stride(2),
        DIM=dim,
    )  # fmt: skip
    return out
