# gpu-programming/triton-kernels/attention.py | corner | In `attention_kernel`, `q = (q.to(tl.float32) * scale).to(q_ptr.dtype.element_ty)` rounds the scaled query to 16 bits before the product; the fp32 scores should be multiplied by scale instead. Shows for large scores (q 30 times as large) in fp16 and bf16: weights of rows with two near maxima lose digits. fp32 and scores of ordinary size are within the tolerance.
"""Causal attention: a program walks over the keys in two stages, the full blocks and those at the diagonal."""

import math

import torch
import triton
import triton.language as tl

LOG2E = 1.4426950408889634


def _config(block_m, block_n, num_stages, num_warps):
    """One candidate: queries of a program and keys of a step, pipeline depth and warps."""
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "STAGES": num_stages}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


# BLOCK_N divides BLOCK_M: the full blocks end where the tile begins. The last one is for fp32.
CONFIGS = [
    _config(128, 64, 3, 8),
    _config(128, 32, 4, 8),
    _config(64, 64, 3, 4),
    _config(32, 32, 2, 4),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: tiles no longer than the sequence, and the last one alone for fp32."""
    longest = 0 if named_args["q_ptr"].dtype == torch.float32 else named_args["length"]
    return [config for config in configs if config.kwargs["BLOCK_M"] <= longest] or configs[-1:]


@triton.jit
def walk(
    acc, m, d, q, k_head, v_head, stride_kn, stride_vn, offs_m, begin, end, length,
    MASKED: tl.constexpr, STAGES: tl.constexpr, DIM: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """acc, m and d with the keys from begin to end; the scores of q and a key are to the base 2."""
    block = tl.arange(0, BLOCK_N)
    dims = tl.arange(0, DIM)
    for start in tl.range(begin, end, BLOCK_N, num_stages=STAGES):
        keys = start + block
        k_ptrs = k_head + keys.to(tl.int64)[None, :] * stride_kn + dims[:, None]
        v_ptrs = v_head + keys.to(tl.int64)[:, None] * stride_vn + dims[None, :]
        if MASKED:
            k = tl.load(k_ptrs, mask=keys[None, :] < length, other=0.0)
            v = tl.load(v_ptrs, mask=keys[:, None] < length, other=0.0)
        else:
            k = tl.load(k_ptrs)
            v = tl.load(v_ptrs)
        scores = tl.dot(q, k, input_precision="ieee")
        if MASKED:
            scores = tl.where(offs_m[:, None] >= keys[None, :], scores, -float("inf"))
        m_new = tl.maximum(m, tl.max(scores, axis=1))
        p = tl.exp2(scores - m_new[:, None])
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
    """A program owns BLOCK_M queries of one head. Tiles of all heads with the most keys come first."""
    all_heads = tl.num_programs(axis=0) // tl.cdiv(length, BLOCK_M)
    pid = tl.program_id(axis=0)
    first = (tl.cdiv(length, BLOCK_M) - 1 - pid // all_heads) * BLOCK_M
    b = (pid % all_heads // heads).to(tl.int64)
    h = (pid % all_heads % heads).to(tl.int64)

    offs_m = first + tl.arange(0, BLOCK_M)
    dims = tl.arange(0, DIM)
    inside = offs_m[:, None] < length
    q_ptrs = q_ptr + b * stride_qb + h * stride_qh + offs_m.to(tl.int64)[:, None] * stride_qm + dims[None, :]
    # Scaled once here, and not once for each block of keys.
    q = tl.load(q_ptrs, mask=inside, other=0.0)
    q = (q.to(tl.float32) * scale).to(q_ptr.dtype.element_ty)
    k_head = k_ptr + b * stride_kb + h * stride_kh
    v_head = v_ptr + b * stride_vb + h * stride_vh

    m = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)
    acc, m, d = walk(
        acc, m, d, q, k_head, v_head, stride_kn, stride_vn, offs_m, 0, first, length,
        MASKED=False, STAGES=STAGES, DIM=DIM, BLOCK_N=BLOCK_N,
    )  # fmt: skip
    end = tl.minimum(first + BLOCK_M, length)
    acc, m, d = walk(
        acc, m, d, q, k_head, v_head, stride_kn, stride_vn, offs_m, first, end, length,
        MASKED=True, STAGES=1, DIM=DIM, BLOCK_N=BLOCK_N,
    )  # fmt: skip

    out_ptrs = out_ptr + b * stride_ob + h * stride_oh + offs_m.to(tl.int64)[:, None] * stride_om + dims[None, :]
    tl.store(out_ptrs, (acc / d[:, None]).to(out_ptr.dtype.element_ty), mask=inside)


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v for each head, where a query sees its own key and those before it.

    q, k and v are (batch, heads, length, dim), bf16, fp16 or fp32, dim contiguous; the result goes to `out`
    where one is given.
    """
    batch, heads, length, dim = q.shape
    if out is None:
        out = torch.empty((batch, heads, length, dim), device=q.device, dtype=q.dtype)
    grid = lambda meta: (triton.cdiv(length, meta["BLOCK_M"]) * batch * heads,)  # noqa: E731
    attention_kernel[grid](
        q, k, v, out, heads, length, LOG2E / math.sqrt(dim),
        q.stride(0), q.stride(1), q.stride(2), k.stride(0), k.stride(1), k.stride(2),
        v.stride(0), v.stride(1), v.stride(2), out.stride(0), out.stride(1), out.stride(2),
        DIM=dim,
    )  # fmt: skip
    return out
