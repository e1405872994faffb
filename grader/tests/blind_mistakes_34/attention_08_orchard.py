# gpu-programming/triton-kernels/attention.py | error | in attention, the lambda of the grid returns `(triton.cdiv(...) * batch * heads)`, an int in parentheses and no tuple: the comma is missing, so Triton fails at len(grid) ("object of type 'int' has no len()") and no kernel is ever launched, in every case. It should be `(triton.cdiv(...) * batch * heads,)`
"""Flash attention, causal: the matrix of scores exists only block by block."""

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
    _config(32, 16, 2, 4),
]


def fitting(configs, named_args, **kwargs):
    longest = 0 if named_args["q_ptr"].dtype == torch.float32 else named_args["length"]
    return [config for config in configs if config.kwargs["BLOCK_M"] <= longest] or configs[-1:]


@triton.jit
def fold(acc, m, d, q, k_ptrs, v_ptrs, offs_m, keys, length, scale, DIAGONAL: tl.constexpr):
    """One more block of keys. m is in units of scale * score, the exponent of a power of two."""
    if DIAGONAL:
        k = tl.load(k_ptrs, mask=(keys < length)[:, None], other=0.0)
        v = tl.load(v_ptrs, mask=(keys < length)[:, None], other=0.0)
    else:
        k = tl.load(k_ptrs)
        v = tl.load(v_ptrs)
    scores = tl.dot(q, k.T, input_precision="ieee")
    if DIAGONAL:
        scores = tl.where(keys[None, :] <= offs_m[:, None], scores, float("-inf"))
    m_new = tl.maximum(m, scale * tl.max(scores, axis=1))
    p = tl.exp2(scale * scores - m_new[:, None])
    factor = tl.exp2(m - m_new)
    d = d * factor + tl.sum(p, axis=1)
    acc = tl.dot(p.to(v.dtype), v, acc * factor[:, None], input_precision="ieee")
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
    n_heads = tl.num_programs(axis=0) // n_tiles  # of all batches
    pid = tl.program_id(axis=0)
    start_m = (n_tiles - 1 - pid // n_heads) * BLOCK_M
    batch = (pid % n_heads // heads).to(tl.int64)
    head = (pid % n_heads % heads).to(tl.int64)

    offs_m = start_m + tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    offs_d = tl.arange(0, DIM)
    q_ptrs = (
        q_ptr + batch * stride_qb + head * stride_qh + offs_m.to(tl.int64)[:, None] * stride_qm + offs_d[None, :]
    )
    k_ptrs = k_ptr + batch * stride_kb + head * stride_kh + offs_n[:, None] * stride_kn + offs_d[None, :]
    v_ptrs = v_ptr + batch * stride_vb + head * stride_vh + offs_n[:, None] * stride_vn + offs_d[None, :]
    q = tl.load(q_ptrs, mask=(offs_m < length)[:, None], other=0.0)

    m = tl.full((BLOCK_M,), float("-inf"), dtype=tl.float32)
    d = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)
    for start in range(0, start_m, BLOCK_N):
        acc, m, d = fold(acc, m, d, q, k_ptrs, v_ptrs, offs_m, start + offs_n, length, scale, DIAGONAL=False)
        k_ptrs += BLOCK_N * stride_kn
        v_ptrs += BLOCK_N * stride_vn
    stop = tl.minimum(start_m + BLOCK_M, length)
    for start in tl.range(start_m, stop, BLOCK_N, num_stages=1):
        acc, m, d = fold(acc, m, d, q, k_ptrs, v_ptrs, offs_m, start + offs_n, length, scale, DIAGONAL=True)
        k_ptrs += BLOCK_N * stride_kn
        v_ptrs += BLOCK_N * stride_vn

    out_ptrs = (
        out_ptr + batch * stride_ob + head * stride_oh + offs_m.to(tl.int64)[:, None] * stride_om + offs_d[None, :]
    )
    tl.store(out_ptrs, (acc / d[:, None]).to(out_ptr.dtype.element_ty), mask=(offs_m < length)[:, None])


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v for each head, where a query sees its own key and those before it."""
    batch, heads, length, dim = q.shape
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device) if out is None else out
    grid = lambda meta: (triton.cdiv(length, meta["BLOCK_M"]) * batch * heads)
    attention_kernel[grid](
        q, k, v, out, heads, length, math.log2(math.e) / math.sqrt(dim),
        q.stride(0), q.stride(1), q.stride(2),
        k.stride(0), k.stride(1), k.stride(2),
        v.stride(0), v.stride(1), v.stride(2),
        out.stride(0), out.stride(1), out.stride(2),
        DIM=dim,
    )  # fmt: skip
    return out
