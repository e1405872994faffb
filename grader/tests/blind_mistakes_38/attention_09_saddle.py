# gpu-programming/triton-kernels/attention.py | error | attention_kernel does not compile: m and d begin with the shape (BLOCK_M,), but the loop computes with columns (keep_dims=True), so m_new = tl.maximum(m, column) becomes (BLOCK_M, BLOCK_M) and `scores - m_new` does not fit (BLOCK_M, BLOCK_N); shows in every case; m and d should begin as (BLOCK_M, 1)
"""Causal attention, one tile of queries for each program, with maximum and sum of a row beside its scores."""

import math

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, num_stages, num_warps):
    return triton.Config({"BLOCK_M": block_m, "BLOCK_N": block_n}, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [_config(128, 64, 3, 8), _config(128, 32, 4, 8), _config(64, 32, 4, 4), _config(32, 16, 2, 4)]


def fitting(configs, named_args, **kwargs):
    """The last config for fp32; in 16 bits all whose queries exist."""
    longest = 0 if named_args["q_ptr"].dtype == torch.float32 else named_args["length"]
    return [config for config in configs if config.kwargs["BLOCK_M"] <= longest] or configs[-1:]


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, heads, length, scale,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_om,
    DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """out = softmax(q k^T * scale) v over the keys up to each query; scale is 1 / sqrt(DIM)."""
    tiles = tl.cdiv(length, BLOCK_M)
    pid = tl.program_id(axis=0)
    tile, pair = tiles - 1 - pid % tiles, pid // tiles
    b, h = (pair // heads).to(tl.int64), (pair % heads).to(tl.int64)

    offs_m = tile * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_d = tl.arange(0, DIM)
    exists = offs_m[:, None] < length
    q_ptrs = q_ptr + b * stride_qb + h * stride_qh + offs_m.to(tl.int64)[:, None] * stride_qm + offs_d[None, :]
    q = tl.load(q_ptrs, mask=exists, other=0.0)
    k_head = k_ptr + b * stride_kb + h * stride_kh
    v_head = v_ptr + b * stride_vb + h * stride_vh

    m = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)
    end = tl.minimum(tile * BLOCK_M + BLOCK_M, length)
    for start in range(0, end, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        far_n = offs_n.to(tl.int64)[:, None]
        present = offs_n[:, None] < length
        k = tl.load(k_head + far_n * stride_kn + offs_d[None, :], mask=present, other=0.0)
        v = tl.load(v_head + far_n * stride_vn + offs_d[None, :], mask=present, other=0.0)
        scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        scores = tl.where(offs_m[:, None] >= offs_n[None, :], scores, -float("inf"))
        m_new = tl.maximum(m, tl.max(scores, axis=1, keep_dims=True))
        p = tl.exp(scores - m_new)
        factor = tl.exp(m - m_new)
        d = d * factor + tl.sum(p, axis=1, keep_dims=True)
        acc = tl.dot(p.to(v.dtype), v, acc * factor, input_precision="ieee")
        m = m_new

    out_ptrs = out_ptr + b * stride_ob + h * stride_oh + offs_m.to(tl.int64)[:, None] * stride_om + offs_d[None, :]
    tl.store(out_ptrs, (acc / d).to(out_ptr.dtype.element_ty), mask=exists)


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Causal attention over (batch, heads, length, dim); the result goes to `out` where it is given."""
    batch, heads, length, dim = q.shape
    out = q.new_empty(q.shape) if out is None else out
    programs = lambda meta: (triton.cdiv(length, meta["BLOCK_M"]) * batch * heads,)  # noqa: E731
    attention_kernel[programs](
        q, k, v, out, heads, length, 1.0 / math.sqrt(dim),
        *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *out.stride()[:3], DIM=dim,
    )  # fmt: skip
    return out
