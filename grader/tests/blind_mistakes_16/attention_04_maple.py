# gpu-programming/triton-kernels/attention.py | two mistakes | (1) fold sets m = top before it computes fade = exp2(m - top), so fade is always 1 and the sums are not rescaled when the maximum grows; fade should be computed from the old m. (2) attention passes 1 / sqrt(dim) as scale although the kernel uses exp2; it should be log2(e) / sqrt(dim).
"""Causal attention without the matrix of scores: online softmax over blocks of keys, autotuned."""

import math

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, num_stages, num_warps):
    """One candidate: queries of a program and keys of a step, powers of two, pipeline depth and warps."""
    return triton.Config({"BLOCK_M": block_m, "BLOCK_N": block_n}, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 128, 2, 8),
    _config(128, 64, 3, 8),
    _config(64, 64, 3, 4),
    _config(64, 32, 3, 4),
    _config(16, 16, 2, 4),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: tiles no longer than the sequence, and the last one alone for fp32."""
    longest = 0 if named_args["q_ptr"].dtype == torch.float32 else named_args["length"]
    return [config for config in configs if config.kwargs["BLOCK_M"] <= longest] or configs[-1:]


@triton.jit
def fold(acc, m, d, q, k_ptrs, v_ptrs, offs_m, keys, length, scale, DIAGONAL: tl.constexpr):
    """The sums acc of p * v and d of p with one more block of keys, p = exp2(scale * scores - m), and m."""
    if DIAGONAL:
        k = tl.load(k_ptrs, mask=keys[None, :] < length, other=0.0)
        v = tl.load(v_ptrs, mask=keys[:, None] < length, other=0.0)
        s = tl.dot(q, k, input_precision="ieee") * scale
        s = tl.where(offs_m[:, None] >= keys[None, :], s, -float("inf"))
    else:
        k = tl.load(k_ptrs)
        v = tl.load(v_ptrs)
        s = tl.dot(q, k, input_precision="ieee") * scale
    top = tl.maximum(m, tl.max(s, axis=1))
    p = tl.exp2(s - top[:, None])
    m = top
    fade = tl.exp2(m - top)
    d = d * fade + tl.sum(p, axis=1)
    acc = acc * fade[:, None]
    acc = tl.dot(p.to(v.dtype), v, acc, input_precision="ieee")
    return acc, m, d


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, heads, length, scale,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_om,
    DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """out[i, :] = sum over j <= i of softmax(q k^T)[i, j] v[j, :]; a program owns BLOCK_M rows of one head."""
    tile = tl.num_programs(axis=1) - 1 - tl.program_id(axis=1)
    batch = (tl.program_id(axis=0) // heads).to(tl.int64)
    head = (tl.program_id(axis=0) % heads).to(tl.int64)
    q_ptr += batch * stride_qb + head * stride_qh
    k_ptr += batch * stride_kb + head * stride_kh
    v_ptr += batch * stride_vb + head * stride_vh
    out_ptr += batch * stride_ob + head * stride_oh
    start_m = tile * BLOCK_M
    offs_m = start_m + tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    offs_d = tl.arange(0, DIM)
    q_ptrs = q_ptr + offs_m.to(tl.int64)[:, None] * stride_qm + offs_d[None, :]
    q = tl.load(q_ptrs, mask=offs_m[:, None] < length, other=0.0)

    m = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)
    for start in range(0, start_m, BLOCK_N):
        keys = (start + offs_n).to(tl.int64)
        k_ptrs = k_ptr + keys[None, :] * stride_kn + offs_d[:, None]
        v_ptrs = v_ptr + keys[:, None] * stride_vn + offs_d[None, :]
        acc, m, d = fold(acc, m, d, q, k_ptrs, v_ptrs, offs_m, keys, length, scale, DIAGONAL=False)
    for start in tl.range(start_m, tl.minimum(start_m + BLOCK_M, length), BLOCK_N, num_stages=1):
        keys = (start + offs_n).to(tl.int64)
        k_ptrs = k_ptr + keys[None, :] * stride_kn + offs_d[:, None]
        v_ptrs = v_ptr + keys[:, None] * stride_vn + offs_d[None, :]
        acc, m, d = fold(acc, m, d, q, k_ptrs, v_ptrs, offs_m, keys, length, scale, DIAGONAL=True)

    out_ptrs = out_ptr + offs_m.to(tl.int64)[:, None] * stride_om + offs_d[None, :]
    acc = acc / d[:, None]
    tl.store(out_ptrs, acc.to(out_ptr.dtype.element_ty), mask=offs_m[:, None] < length)


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v for each head, where a query sees its own key and those before it."""
    batch, heads, length, dim = q.shape
    out = torch.empty((batch, heads, length, dim), device=q.device, dtype=q.dtype) if out is None else out
    grid = lambda meta: (batch * heads, triton.cdiv(length, meta["BLOCK_M"]))  # noqa: E731
    attention_kernel[grid](
        q, k, v, out, heads, length, 1.0 / math.sqrt(dim),
        q.stride(0), q.stride(1), q.stride(2), k.stride(0), k.stride(1), k.stride(2),
        v.stride(0), v.stride(1), v.stride(2), out.stride(0), out.stride(1), out.stride(2),
        DIM=dim,
    )  # fmt: skip
    return out
