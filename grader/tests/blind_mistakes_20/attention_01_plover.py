# gpu-programming/triton-kernels/attention.py | wrong everywhere | In attention_kernel the merge of the two halves uses tl.exp(m_even - m) and tl.exp(m_odd - m), but m is in units of log2 (scores are scaled by log2(e)), so the weights of even and odd keys do not fit; both should be tl.exp2. Wrong in nearly all rows from row 1 on; only length 1 is right.
"""Causal attention in which even and odd keys have an online softmax each, merged at the end."""

import math

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, num_stages, num_warps):
    return triton.Config({"BLOCK_M": block_m, "BLOCK_N": block_n}, num_stages=num_stages, num_warps=num_warps)


# BLOCK_N counts the keys of one parity: a step has twice as many.
CONFIGS = [
    _config(128, 32, 2, 8),
    _config(64, 64, 2, 8),
    _config(64, 32, 2, 4),
    _config(32, 16, 2, 4),
]


def fitting(configs, named_args, **kwargs):
    """Tiles no longer than the sequence, and the last one alone for fp32."""
    longest = 0 if named_args["q_ptr"].dtype == torch.float32 else named_args["length"]
    return [config for config in configs if config.kwargs["BLOCK_M"] <= longest] or configs[-1:]


@triton.jit
def fold(acc, m, d, q, k_base, v_base, stride_kn, stride_vn, offs_m, keys, length, scale, DIM: tl.constexpr):
    """acc, m and d with the keys of one block more. A row may not have seen any key so far."""
    dims = tl.arange(0, DIM)
    far = keys.to(tl.int64)
    k = tl.load(
        k_base + far[None, :] * stride_kn + dims[:, None], mask=(keys < length)[None, :], other=0.0
    )
    v = tl.load(
        v_base + far[:, None] * stride_vn + dims[None, :], mask=(keys < length)[:, None], other=0.0
    )
    seen = (offs_m[:, None] >= keys[None, :]) & (keys < length)[None, :]
    s = tl.where(seen, tl.dot(q, k, input_precision="ieee") * scale, -float("inf"))
    m_new = tl.maximum(m, tl.max(s, axis=1))
    # -inf minus -inf is NaN: without any key so far, subtract 0
    ref = tl.where(m_new == -float("inf"), 0.0, m_new)
    p = tl.exp2(s - ref[:, None])
    shrink = tl.exp2(m - ref)
    acc = tl.dot(p.to(v.dtype), v, acc * shrink[:, None], input_precision="ieee")
    d = d * shrink + tl.sum(p, axis=1)
    return acc, m_new, d


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, heads, length, scale,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_om,
    DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """A program owns BLOCK_M queries of one head. scale is log2(e) / sqrt(DIM)."""
    tiles = tl.cdiv(length, BLOCK_M)
    pid = tl.program_id(0)
    tile = tiles - 1 - pid % tiles
    batch = (pid // tiles // heads).to(tl.int64)
    head = (pid // tiles % heads).to(tl.int64)
    offs_m = tile * BLOCK_M + tl.arange(0, BLOCK_M)
    dims = tl.arange(0, DIM)
    row_ok = (offs_m < length)[:, None]
    far = offs_m.to(tl.int64)[:, None]

    q = tl.load(
        q_ptr + batch * stride_qb + head * stride_qh + far * stride_qm + dims[None, :], mask=row_ok, other=0.0
    )
    k_base = k_ptr + batch * stride_kb + head * stride_kh
    v_base = v_ptr + batch * stride_vb + head * stride_vh

    m_even = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    m_odd = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    d_even = tl.zeros((BLOCK_M,), dtype=tl.float32)
    d_odd = tl.zeros((BLOCK_M,), dtype=tl.float32)
    even = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)
    odd = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)

    # Two chains that do not wait for each other: while one takes its maximum, the other multiplies.
    end = tl.minimum(length, (tile + 1) * BLOCK_M)
    for start in range(0, end, 2 * BLOCK_N):
        keys = start + 2 * tl.arange(0, BLOCK_N)
        even, m_even, d_even = fold(
            even, m_even, d_even, q, k_base, v_base, stride_kn, stride_vn, offs_m, keys, length, scale, DIM
        )
        odd, m_odd, d_odd = fold(
            odd, m_odd, d_odd, q, k_base, v_base, stride_kn, stride_vn, offs_m, keys + 1, length, scale, DIM
        )

    # Key 0 is even and every query sees it, so m is finite. Query 0 has no odd key: its weight is 0.
    m = tl.maximum(m_even, m_odd)
    w_even = tl.exp(m_even - m)
    w_odd = tl.exp(m_odd - m)
    acc = even * w_even[:, None] + odd * w_odd[:, None]
    d = d_even * w_even + d_odd * w_odd

    out_ptrs = out_ptr + batch * stride_ob + head * stride_oh + far * stride_om + dims[None, :]
    tl.store(out_ptrs, (acc / d[:, None]).to(out_ptr.dtype.element_ty), mask=row_ok)


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v for each head, where a query sees its own key and those before it."""
    if out is None:
        out = torch.empty(q.shape, device=q.device, dtype=q.dtype)
    batch, heads, length, dim = q.shape
    scale = math.log2(math.e) / math.sqrt(dim)
    grid = lambda meta: (batch * heads * triton.cdiv(length, meta["BLOCK_M"]),)  # noqa: E731
    attention_kernel[grid](
        q, k, v, out, heads, length, scale,
        q.stride(0), q.stride(1), q.stride(2), k.stride(0), k.stride(1), k.stride(2),
        v.stride(0), v.stride(1), v.stride(2), out.stride(0), out.stride(1), out.stride(2),
        DIM=dim,
    )  # fmt: skip
    return out
