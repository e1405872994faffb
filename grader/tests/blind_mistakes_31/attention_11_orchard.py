# gpu-programming/triton-kernels/attention.py | wrong everywhere | fold keeps the scores transposed, keys along axis 0 and queries along axis 1, but sums p for d along axis=1, over the queries of each key, where it has to sum over the keys of each query, tl.sum(p, axis=0). Tiles are square, so the shapes agree, and every row is divided by a wrong number (by 0 for some rows of the extreme values), in every case, also with one key
"""Causal attention without the matrix of scores, on transposed tiles: a column belongs to a query."""

import math

import torch
import triton
import triton.language as tl


def _config(block, num_stages, num_warps):
    """One candidate: as many keys of a step as queries of a program."""
    return triton.Config({"BLOCK_M": block, "BLOCK_N": block}, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [_config(128, 2, 8), _config(64, 3, 4), _config(64, 3, 8), _config(32, 2, 4)]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: tiles no longer than the sequence, and the last one alone for fp32."""
    longest = 0 if named_args["q_ptr"].dtype == torch.float32 else named_args["length"]
    return [config for config in configs if config.kwargs["BLOCK_M"] <= longest] or configs[-1:]


@triton.jit
def fold(acc, m, d, q, k_ptrs, v_ptrs, offs_m, keys, length, scale, DIAGONAL: tl.constexpr):
    """One more block of keys: acc is (DIM, BLOCK_M), q (DIM, BLOCK_M), and m and d have one number a query."""
    if DIAGONAL:
        k = tl.load(k_ptrs, mask=(keys < length)[:, None], other=0.0)
        v = tl.load(v_ptrs, mask=(keys < length)[None, :], other=0.0)
    else:
        k = tl.load(k_ptrs)
        v = tl.load(v_ptrs)
    scores = tl.dot(k, q, input_precision="ieee")
    if DIAGONAL:
        scores = tl.where(keys[:, None] <= offs_m[None, :], scores, -float("inf"))
    m_new = tl.maximum(m, scale * tl.max(scores, axis=0))
    p = tl.exp2(scale * scores - m_new[None, :])
    factor = tl.exp2(m - m_new)
    d = d * factor + tl.sum(p, axis=1)
    acc = tl.dot(v, p.to(v.dtype), acc * factor[None, :], input_precision="ieee")
    return acc, m_new, d


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, heads, length, scale,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_om,
    DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """A program owns BLOCK_M queries of one head. scale is log2(e) / sqrt(DIM).

    Tiles in registers: k (BLOCK_N, DIM), q and v (DIM, queries or keys), scores (BLOCK_N, BLOCK_M).
    """
    pid, tiles = tl.program_id(axis=0), tl.cdiv(length, BLOCK_M)
    first = (tiles - 1 - pid % tiles) * BLOCK_M
    batch, head = (pid // tiles // heads).to(tl.int64), (pid // tiles % heads).to(tl.int64)
    offs_m, offs_n, offs_d = first + tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_N), tl.arange(0, DIM)
    exists = (offs_m < length)[None, :]
    queries = offs_m[None, :].to(tl.int64)
    q_ptrs = q_ptr + batch * stride_qb + head * stride_qh + offs_d[:, None] + queries * stride_qm
    out_ptrs = out_ptr + batch * stride_ob + head * stride_oh + offs_d[:, None] + queries * stride_om
    k_ptrs = k_ptr + batch * stride_kb + head * stride_kh + offs_n[:, None] * stride_kn + offs_d[None, :]
    v_ptrs = v_ptr + batch * stride_vb + head * stride_vh + offs_d[:, None] + offs_n[None, :] * stride_vn
    q = tl.load(q_ptrs, mask=exists, other=0.0)
    m = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((DIM, BLOCK_M), dtype=tl.float32)
    for start in range(0, first, BLOCK_N):
        acc, m, d = fold(acc, m, d, q, k_ptrs, v_ptrs, offs_m, start + offs_n, length, scale, DIAGONAL=False)
        k_ptrs += BLOCK_N * stride_kn
        v_ptrs += BLOCK_N * stride_vn
    # One block is left, the one at the diagonal.
    acc, m, d = fold(acc, m, d, q, k_ptrs, v_ptrs, offs_m, first + offs_n, length, scale, DIAGONAL=True)
    result = acc / d[None, :]
    tl.store(out_ptrs, result.to(out_ptr.dtype.element_ty), mask=exists)


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v for each head, where a query sees its own key and those before it."""
    batch, heads, length, dim = q.shape
    out = torch.empty((batch, heads, length, dim), device=q.device, dtype=q.dtype) if out is None else out
    scale = math.log2(math.e) * dim**-0.5
    grid = lambda meta: (triton.cdiv(length, meta["BLOCK_M"]) * batch * heads,)  # noqa: E731
    attention_kernel[grid](
        q, k, v, out, heads, length, scale,
        q.stride(0), q.stride(1), q.stride(2), k.stride(0), k.stride(1), k.stride(2),
        v.stride(0), v.stride(1), v.stride(2), out.stride(0), out.stride(1), out.stride(2),
        DIM=dim,
    )  # fmt: skip
    return out
