# gpu-programming/triton-kernels/attention.py | error | `acc = tl.dot(p, v, acc, ...)` multiplies the fp32 weights p with v in 16 bits, which tl.dot refuses for fp16 and bf16 (fp32 works); it should be `tl.dot(p.to(v.dtype), v, acc, ...)`.
"""Causal attention without the matrix of scores: online softmax over blocks of keys, autotuned."""

import math

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, num_stages, num_warps):
    """One candidate: queries of a program and keys of a step, powers of two, pipeline depth and warps."""
    return triton.Config({"BLOCK_M": block_m, "BLOCK_N": block_n}, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 64, 3, 8),
    _config(128, 128, 2, 8),
    _config(64, 64, 3, 4),
    _config(32, 32, 3, 4),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: tiles no longer than the sequence, and the last one alone for fp32."""
    # Exact fp32 runs without tensor cores, where a large tile unrolls into thousands of instructions.
    longest = 0 if named_args["Q"].dtype == torch.float32 else named_args["length"]
    return [config for config in configs if config.kwargs["BLOCK_M"] <= longest] or configs[-1:]


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def attention_kernel(
    Q, K, V, OUT, length, scale,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_om,
    DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Grid: (tiles of queries, heads, batch)."""
    tile = tl.num_programs(0) - 1 - tl.program_id(0)
    head = tl.program_id(1).to(tl.int64)
    batch = tl.program_id(2).to(tl.int64)

    lo = tile * BLOCK_M
    hi = tl.minimum(lo + BLOCK_M, length)
    queries = lo + tl.arange(0, BLOCK_M)
    dims = tl.arange(0, DIM)
    q_tile = Q + batch * stride_qb + head * stride_qh + queries.to(tl.int64)[:, None] * stride_qm + dims[None, :]
    o_tile = OUT + batch * stride_ob + head * stride_oh + queries.to(tl.int64)[:, None] * stride_om + dims[None, :]
    k_head = K + batch * stride_kb + head * stride_kh
    v_head = V + batch * stride_vb + head * stride_vh
    q = tl.load(q_tile, mask=queries[:, None] < length, other=0.0)

    m = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)
    for at in tl.range(0, hi, BLOCK_N):
        keys = at + tl.arange(0, BLOCK_N)
        far = keys.to(tl.int64)
        k = tl.load(k_head + far[None, :] * stride_kn + dims[:, None], mask=keys[None, :] < length, other=0.0)
        v = tl.load(v_head + far[:, None] * stride_vn + dims[None, :], mask=keys[:, None] < length, other=0.0)
        qk = tl.dot(q, k, input_precision="ieee") * scale
        qk = tl.where(queries[:, None] >= keys[None, :], qk, -float("inf"))

        m_new = tl.maximum(m, tl.max(qk, 1))
        p = tl.exp2(qk - m_new[:, None])
        alpha = tl.exp2(m - m_new)
        d = d * alpha + tl.sum(p, 1)
        acc = acc * alpha[:, None]
        acc = tl.dot(p, v, acc, input_precision="ieee")
        m = m_new

    tl.store(o_tile, (acc / d[:, None]).to(OUT.dtype.element_ty), mask=queries[:, None] < length)


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v for each head, where a query sees its own key and those before it."""
    batch, heads, length, dim = q.shape
    if out is None:
        out = q.new_empty(q.shape)
    strides = [t.stride(axis) for t in (q, k, v, out) for axis in range(3)]
    attention_kernel[lambda meta: (triton.cdiv(length, meta["BLOCK_M"]), heads, batch)](
        q, k, v, out, length, math.log2(math.e) / math.sqrt(dim), *strides, DIM=dim
    )
    return out
