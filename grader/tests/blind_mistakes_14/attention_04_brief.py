# gpu-programming/triton-kernels/attention.py | error | In `fold`, `tl.dot(p, v, ...)` multiplies the fp32 weights p by v in fp16 or bf16, and `tl.dot` refuses operands of two dtypes, so every 16-bit call fails to compile; it should be `tl.dot(p.to(v.dtype), v, ...)`.
"""Causal attention, block by block."""

import math

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, num_stages, num_warps):
    return triton.Config({"BLOCK_M": block_m, "BLOCK_N": block_n}, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 128, 2, 8),
    _config(128, 64, 3, 8),
    _config(64, 64, 3, 4),
    _config(32, 32, 2, 4),
]


def fitting(configs, named_args, **kwargs):
    longest = 0 if named_args["q_ptr"].dtype == torch.float32 else named_args["length"]
    return [config for config in configs if config.kwargs["BLOCK_M"] <= longest] or configs[-1:]


@triton.jit
def fold(acc, m, d, q, k_ptrs, v_ptrs, offs_m, keys, length, scale, DIAGONAL: tl.constexpr):
    if DIAGONAL:
        k = tl.load(k_ptrs, mask=keys[None, :] < length, other=0.0)
        v = tl.load(v_ptrs, mask=keys[:, None] < length, other=0.0)
        s = tl.dot(q, k, input_precision="ieee")
        s = tl.where(offs_m[:, None] >= keys[None, :], s, -float("inf"))
    else:
        k = tl.load(k_ptrs)
        v = tl.load(v_ptrs)
        s = tl.dot(q, k, input_precision="ieee")
    m_new = tl.maximum(m, tl.max(s, 1) * scale)
    p = tl.exp2(s * scale - m_new[:, None])
    c = tl.exp2(m - m_new)
    d = d * c + tl.sum(p, 1)
    acc = tl.dot(p, v, acc * c[:, None], input_precision="ieee")
    return acc, m_new, d


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, heads, length, scale,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_om,
    DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    n_tiles = tl.cdiv(length, BLOCK_M)
    pid = tl.program_id(0)
    lo = (n_tiles - 1 - pid % n_tiles) * BLOCK_M
    hi = min(lo + BLOCK_M, length)
    ib = (pid // (n_tiles * heads)).to(tl.int64)
    ih = (pid // n_tiles % heads).to(tl.int64)

    offs_m = lo + tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N).to(tl.int64)
    offs_d = tl.arange(0, DIM)
    q_ptrs = q_ptr + ib * stride_qb + ih * stride_qh + offs_m.to(tl.int64)[:, None] * stride_qm + offs_d[None, :]
    o_ptrs = out_ptr + ib * stride_ob + ih * stride_oh + offs_m.to(tl.int64)[:, None] * stride_om + offs_d[None, :]
    k0 = k_ptr + ib * stride_kb + ih * stride_kh + offs_d[:, None]
    v0 = v_ptr + ib * stride_vb + ih * stride_vh + offs_d[None, :]
    q = tl.load(q_ptrs, mask=offs_m[:, None] < length, other=0.0)

    m = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)
    for j in range(0, lo, BLOCK_N):
        keys = j + offs_n
        acc, m, d = fold(
            acc, m, d, q, k0 + keys[None, :] * stride_kn, v0 + keys[:, None] * stride_vn, offs_m, keys, length, scale, False
        )
    for j in tl.range(lo, hi, BLOCK_N, num_stages=1):
        keys = j + offs_n
        acc, m, d = fold(
            acc, m, d, q, k0 + keys[None, :] * stride_kn, v0 + keys[:, None] * stride_vn, offs_m, keys, length, scale, True
        )
    tl.store(o_ptrs, (acc / d[:, None]).to(out_ptr.dtype.element_ty), mask=offs_m[:, None] < length)


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    b, h, n, dim = q.shape
    out = torch.empty((b, h, n, dim), device=q.device, dtype=q.dtype) if out is None else out
    attention_kernel[lambda meta: (triton.cdiv(n, meta["BLOCK_M"]) * b * h,)](
        q, k, v, out, h, n, math.log2(math.e) / math.sqrt(dim),
        q.stride(0), q.stride(1), q.stride(2),
        k.stride(0), k.stride(1), k.stride(2),
        v.stride(0), v.stride(1), v.stride(2),
        out.stride(0), out.stride(1), out.stride(2),
        DIM=dim,
    )  # fmt: skip
    return out
