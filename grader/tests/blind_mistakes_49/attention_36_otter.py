# gpu-programming/triton-kernels/attention.py | error | In `attention_kernel`, `rows = tl.arange(first, first + BLOCK_M)` has bounds that are known only at run time; `tl.arange` takes constants, so the kernel does not compile ("arange's arguments must be of type tl.constexpr"). It should be `first + tl.arange(0, BLOCK_M)`. All cases.
"""Causal attention: one helper sweeps over a range of keys, with or without masks, autotuned."""

import math

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, depth, num_warps):
    """One candidate; DEPTH is the number of stages of the long loop, and BLOCK_N divides BLOCK_M."""
    sizes = {"BLOCK_M": block_m, "BLOCK_N": block_n, "DEPTH": depth}
    return triton.Config(sizes, num_stages=depth, num_warps=num_warps)


CONFIGS = [_config(128, 64, 3, 8), _config(128, 32, 4, 8), _config(64, 64, 3, 4), _config(64, 32, 2, 4)]


def fitting(configs, named_args, **kwargs):
    """Tiles no longer than the sequence, and the last config alone for fp32."""
    if named_args["q_ptr"].dtype == torch.float32:
        return configs[-1:]
    return [c for c in configs if c.kwargs["BLOCK_M"] <= named_args["length"]] or configs[-1:]


@triton.jit
def sweep(
    acc, m, d, q, rows, k_head, v_head, stride_kn, stride_vn, low, high, length, scale,
    DIM: tl.constexpr, BLOCK_N: tl.constexpr, STAGES: tl.constexpr, MASK: tl.constexpr,
):  # fmt: skip
    """acc, m and d with the keys from low to high; with MASK some are hidden or do not exist."""
    lanes = tl.arange(0, BLOCK_N)
    dims = tl.arange(0, DIM)
    k_offsets = lanes.to(tl.int64)[:, None] * stride_kn + dims[None, :]
    v_offsets = lanes.to(tl.int64)[:, None] * stride_vn + dims[None, :]
    k_start = k_head + tl.cast(low, tl.int64) * stride_kn
    v_start = v_head + tl.cast(low, tl.int64) * stride_vn
    for start in tl.range(low, high, BLOCK_N, num_stages=STAGES):
        if MASK:
            exists = (start + lanes < length)[:, None]
            k = tl.load(k_start + k_offsets, mask=exists, other=0.0)
            v = tl.load(v_start + v_offsets, mask=exists, other=0.0)
        else:
            k = tl.load(k_start + k_offsets)
            v = tl.load(v_start + v_offsets)
        scores = scale * tl.dot(q, tl.trans(k), input_precision="ieee")
        if MASK:
            scores = tl.where(rows[:, None] >= (start + lanes)[None, :], scores, -float("inf"))
        m_new = tl.maximum(m, tl.max(scores, axis=1))
        p = tl.exp2(scores - m_new[:, None])
        factor = tl.exp2(m - m_new)
        d = d * factor + tl.sum(p, axis=1)
        acc = tl.dot(p.to(v.dtype), v, acc * factor[:, None], input_precision="ieee")
        m = m_new
        k_start += BLOCK_N * stride_kn
        v_start += BLOCK_N * stride_vn
    return acc, m, d


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, heads, length, scale,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_om,
    DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    """A program owns BLOCK_M queries of one head; scale is log2(e) / sqrt(DIM)."""
    pid = tl.program_id(axis=0)
    tiles = tl.cdiv(length, BLOCK_M)
    first = (tiles - 1 - pid % tiles) * BLOCK_M
    pair = pid // tiles
    batch, head = (pair // heads).to(tl.int64), (pair % heads).to(tl.int64)
    k_head = k_ptr + batch * stride_kb + head * stride_kh
    v_head = v_ptr + batch * stride_vb + head * stride_vh

    rows = tl.arange(first, first + BLOCK_M)
    exists = (rows < length)[:, None]
    far, dims = rows.to(tl.int64)[:, None], tl.arange(0, DIM)[None, :]
    q_head = q_ptr + batch * stride_qb + head * stride_qh
    q = tl.load(q_head + far * stride_qm + dims, mask=exists, other=0.0)

    m = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)
    acc, m, d = sweep(
        acc, m, d, q, rows, k_head, v_head, stride_kn, stride_vn, 0, first, length, scale,
        DIM, BLOCK_N, STAGES=DEPTH, MASK=False,
    )  # fmt: skip
    acc, m, d = sweep(
        acc, m, d, q, rows, k_head, v_head, stride_kn, stride_vn,
        first, tl.minimum(first + BLOCK_M, length), length, scale,
        DIM, BLOCK_N, STAGES=1, MASK=True,
    )  # fmt: skip

    out_head = out_ptr + batch * stride_ob + head * stride_oh
    tl.store(out_head + far * stride_om + dims, (acc / d[:, None]).to(out_ptr.dtype.element_ty), mask=exists)


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v for each head, where a query sees its own key and those before it.

    q, k and v are (batch, heads, length, dim), bf16, fp16 or fp32, dim 16, 32, 64 or 128 and contiguous, any
    length from 1 on; the result goes to `out`, like q, where one is given.
    """
    batch, heads, length, dim = q.shape
    if out is None:
        out = torch.empty((batch, heads, length, dim), dtype=q.dtype, device=q.device)
    grid = lambda meta: (triton.cdiv(length, meta["BLOCK_M"]) * batch * heads,)  # noqa: E731
    attention_kernel[grid](
        q, k, v, out, heads, length, math.log2(math.e) / math.sqrt(dim),
        *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *out.stride()[:3], DIM=dim,
    )  # fmt: skip
    return out
