# gpu-programming/triton-kernels/attention.py | error | in fold `p = tl.exp2(scores - m_new)` subtracts a vector of BLOCK_M numbers from a block of (BLOCK_M, BLOCK_N): Triton lines it up with the last axis, and BLOCK_M is twice BLOCK_N in every config, so that shapes do not fit (incompatible dimensions) and every call fails in the first block of keys; it should be `scores - m_new[:, None]`
"""Causal attention with one loop over the keys, from the first to the last that the tile can see."""

import math

import torch
import triton
import triton.language as tl


def _config(block_n, num_stages, num_warps):
    """Twice as many queries as keys: q is read once, k and v once for each tile of queries."""
    tile = {"BLOCK_M": 2 * block_n, "BLOCK_N": block_n}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [_config(64, 3, 8), _config(64, 2, 8), _config(32, 3, 4), _config(16, 2, 2)]


def fitting(configs, named_args, **kwargs):
    """What is not longer than the sequence, and for fp32 only the smallest tile."""
    length = named_args["length"]
    if named_args["q_ptr"].dtype == torch.float32:
        length = 0
    return [config for config in configs if config.kwargs["BLOCK_M"] <= length] or configs[-1:]


@triton.jit
def fold(acc, m, d, q, k, v, visible, scale):
    """One block of keys more; `visible` says which query sees which key."""
    scores = tl.dot(q, tl.trans(k), input_precision="ieee")
    scores = tl.where(visible, scores * scale, -float("inf"))
    m_new = tl.maximum(m, tl.max(scores, axis=1))
    p = tl.exp2(scores - m_new)
    factor = tl.exp2(m - m_new)
    d = d * factor + tl.sum(p, axis=1)
    acc = tl.dot(p.to(v.dtype), v, acc * factor[:, None], input_precision="ieee")
    return acc, m_new, d


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, batches, heads, length, scale,
    stride_qb, stride_qh, stride_qm,
    stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn,
    stride_ob, stride_oh, stride_om,
    DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Program numbers count batches fastest, then heads, then tiles from the last to the first."""
    pid = tl.program_id(axis=0)
    b = (pid % batches).to(tl.int64)
    h = (pid // batches % heads).to(tl.int64)
    tile = tl.cdiv(length, BLOCK_M) - 1 - pid // batches // heads

    first = tile * BLOCK_M
    queries = first + tl.arange(0, BLOCK_M)
    block = tl.arange(0, BLOCK_N)
    dims = tl.arange(0, DIM)
    q_rows = q_ptr + b * stride_qb + h * stride_qh + queries[:, None].to(tl.int64) * stride_qm
    o_rows = out_ptr + b * stride_ob + h * stride_oh + queries[:, None].to(tl.int64) * stride_om
    k_ptrs = k_ptr + b * stride_kb + h * stride_kh + block[:, None] * stride_kn + dims[None, :]
    v_ptrs = v_ptr + b * stride_vb + h * stride_vh + block[:, None] * stride_vn + dims[None, :]
    q = tl.load(q_rows + dims[None, :], mask=queries[:, None] < length, other=0.0)

    m = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)
    for start in tl.range(0, tl.minimum(first + BLOCK_M, length), BLOCK_N):
        keys = start + block
        k = tl.load(k_ptrs, mask=keys[:, None] < length, other=0.0)
        v = tl.load(v_ptrs, mask=keys[:, None] < length, other=0.0)
        acc, m, d = fold(acc, m, d, q, k, v, queries[:, None] >= keys[None, :], scale)
        k_ptrs += BLOCK_N * stride_kn
        v_ptrs += BLOCK_N * stride_vn

    acc = acc / d[:, None]
    tl.store(o_rows + dims[None, :], acc.to(out_ptr.dtype.element_ty), mask=queries[:, None] < length)


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Attention of each query to the keys up to its own position."""
    batch, heads, length, dim = q.shape
    if out is None:
        out = torch.empty((batch, heads, length, dim), device=q.device, dtype=q.dtype)
    steps = []
    for tensor in (q, k, v, out):
        steps.extend([tensor.stride(0), tensor.stride(1), tensor.stride(2)])
    programs = lambda meta: (batch * heads * triton.cdiv(length, meta["BLOCK_M"]),)  # noqa: E731
    scale = math.log2(math.e) / math.sqrt(dim)
    attention_kernel[programs](q, k, v, out, batch, heads, length, scale, *steps, DIM=dim)
    return out
