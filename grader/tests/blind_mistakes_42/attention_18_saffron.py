# gpu-programming/triton-kernels/attention.py | contract | In `attention`, `out = torch.empty((batch, length, heads, dim), ...).transpose(1, 2)`: without `out` the result is not contiguous (for more than one head and position); it should be `torch.empty((batch, heads, length, dim), ...)`. The numbers are right; shows in calls without `out`.
"""Causal attention, autotuned: online softmax over blocks of keys, with one loop body for both parts of a row."""

import math

import torch
import triton
import triton.language as tl

LOG2_E = math.log2(math.e)


def _config(block_m, block_n, num_stages, num_warps):
    """One candidate: queries of a program and keys of a step, powers of two, pipeline depth and warps."""
    meta = {"BLOCK_M": block_m, "BLOCK_N": block_n, "STAGES": num_stages}
    return triton.Config(meta, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 128, 2, 8),
    _config(128, 64, 3, 8),
    _config(64, 64, 2, 4),
    _config(64, 32, 3, 4),
    _config(32, 32, 2, 4),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: tiles no longer than the sequence, and the last one alone for fp32."""
    longest = 0 if named_args["q_ptr"].dtype == torch.float32 else named_args["length"]
    return [config for config in configs if config.kwargs["BLOCK_M"] <= longest] or configs[-1:]


@triton.jit
def head_of(ptr, batch, head, stride_b, stride_h):
    """Where one head of a tensor begins; batch and head are int64."""
    return ptr + batch * stride_b + head * stride_h


@triton.jit
def attend(
    acc, m, d, q, k_head, v_head, stride_k, stride_v, queries, low, high, length, scale,
    DIM: tl.constexpr, BLOCK_N: tl.constexpr, MASKED: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """acc, m and d after the keys from low to high; MASKED: each query sees those up to its own position."""
    lanes = tl.arange(0, BLOCK_N)
    dims = tl.arange(0, DIM)[None, :]
    k_block = lanes[:, None] * stride_k + dims
    v_block = lanes[:, None] * stride_v + dims
    for start in tl.range(low, high, BLOCK_N, num_stages=STAGES):
        k_first = k_head + tl.cast(start, tl.int64) * stride_k
        v_first = v_head + tl.cast(start, tl.int64) * stride_v
        if MASKED:
            exists = (start + lanes < length)[:, None]
            k = tl.load(k_first + k_block, mask=exists, other=0.0)
            v = tl.load(v_first + v_block, mask=exists, other=0.0)
        else:
            k = tl.load(k_first + k_block)
            v = tl.load(v_first + v_block)
        scores = tl.dot(q, tl.trans(k), input_precision="ieee")
        if MASKED:
            scores = tl.where(queries[:, None] >= (start + lanes)[None, :], scores, -float("inf"))
        m_new = tl.maximum(m, tl.max(scores, axis=1) * scale)
        p = tl.exp2(scores * scale - m_new[:, None])
        factor = tl.exp2(m - m_new)
        d = d * factor + tl.sum(p, axis=1)
        acc = tl.dot(p.to(v.dtype), v, acc * factor[:, None], input_precision="ieee")
        m = m_new
    return acc, m, d


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, heads, length, scale,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_om,
    DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """out[i, :] = sum over j <= i of softmax(q k^T)[i, j] v[j, :]; a program owns BLOCK_M rows of one head."""
    tile = tl.num_programs(axis=1) - 1 - tl.program_id(axis=1)  # the tiles with the most keys first
    batch = (tl.program_id(axis=0) // heads).to(tl.int64)
    head = (tl.program_id(axis=0) % heads).to(tl.int64)
    first = tile * BLOCK_M
    queries = first + tl.arange(0, BLOCK_M)
    rows = queries.to(tl.int64)[:, None]
    dims = tl.arange(0, DIM)[None, :]

    q_head = head_of(q_ptr, batch, head, stride_qb, stride_qh)
    k_head = head_of(k_ptr, batch, head, stride_kb, stride_kh)
    v_head = head_of(v_ptr, batch, head, stride_vb, stride_vh)
    out_head = head_of(out_ptr, batch, head, stride_ob, stride_oh)

    q = tl.load(q_head + rows * stride_qm + dims, mask=rows < length, other=0.0)
    m = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)
    acc, m, d = attend(
        acc, m, d, q, k_head, v_head, stride_kn, stride_vn, queries, 0, first, length, scale,
        DIM, BLOCK_N, False, STAGES,
    )  # fmt: skip
    last = tl.minimum(first + BLOCK_M, length)
    acc, m, d = attend(
        acc, m, d, q, k_head, v_head, stride_kn, stride_vn, queries, first, last, length, scale,
        DIM, BLOCK_N, True, 1,
    )  # fmt: skip
    result = acc / d[:, None]
    tl.store(out_head + rows * stride_om + dims, result.to(out_ptr.dtype.element_ty), mask=rows < length)


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v for each head, where a query sees its own key and those before it.

    q, k and v are (batch, heads, length, dim), bf16, fp16 or fp32, dim 16, 32, 64 or 128 and contiguous, any
    length from 1 on; the result goes to `out`, where one is given.
    """
    batch, heads, length, dim = q.shape
    if out is None:
        out = torch.empty((batch, length, heads, dim), device=q.device, dtype=q.dtype).transpose(1, 2)
    grid = lambda meta: (batch * heads, triton.cdiv(length, meta["BLOCK_M"]))  # noqa: E731
    attention_kernel[grid](
        q, k, v, out, heads, length, LOG2_E / math.sqrt(dim),
        q.stride(0), q.stride(1), q.stride(2), k.stride(0), k.stride(1), k.stride(2),
        v.stride(0), v.stride(1), v.stride(2), out.stride(0), out.stride(1), out.stride(2),
        DIM=dim,
    )  # fmt: skip
    return out
