# gpu-programming/triton-kernels/attention.py | corner | a head is found as (number of batch and head together) * stride_h, without the batch stride; it must be batch * stride_b + head * stride_h; right for batch 1 and for contiguous tensors, wrong where stride_b is not heads * stride_h (heads side by side at each position, padded) and batch is above 1
"""Flash attention: full blocks of keys first, then the blocks on the diagonal."""

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
    _config(32, 32, 2, 4),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: tiles no longer than the sequence, and the last one alone for fp32."""
    longest = 0 if named_args["q_ptr"].dtype == torch.float32 else named_args["length"]
    return [config for config in configs if config.kwargs["BLOCK_M"] <= longest] or configs[-1:]


@triton.jit
def fold(acc, m, d, q, k_ptrs, v_ptrs, offs_m, keys, length, scale, DIAGONAL: tl.constexpr):
    """One more block of keys."""
    if DIAGONAL:
        k = tl.load(k_ptrs, mask=keys[:, None] < length, other=0.0)
        v = tl.load(v_ptrs, mask=keys[:, None] < length, other=0.0)
    else:
        k = tl.load(k_ptrs)
        v = tl.load(v_ptrs)
    scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
    if DIAGONAL:
        scores = tl.where(offs_m[:, None] >= keys[None, :], scores, -float("inf"))
    m_new = tl.maximum(m, tl.max(scores, 1))
    p = tl.exp2(scores - m_new[:, None])
    alpha = tl.exp2(m - m_new)
    d = d * alpha + tl.sum(p, 1)
    acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None], input_precision="ieee")
    return acc, m_new, d


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, length, scale,
    stride_qh, stride_qm, stride_kh, stride_kn, stride_vh, stride_vn, stride_oh, stride_om,
    DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """A program owns BLOCK_M rows of one head."""
    tiles = tl.cdiv(length, BLOCK_M)
    head = (tl.program_id(0) // tiles).to(tl.int64)
    # the rows with the most keys first
    start = (tiles - 1 - tl.program_id(0) % tiles) * BLOCK_M
    q_ptr += head * stride_qh
    k_ptr += head * stride_kh
    v_ptr += head * stride_vh
    out_ptr += head * stride_oh

    offs_m = start + tl.arange(0, BLOCK_M)
    offs_d = tl.arange(0, DIM)
    rows = offs_m.to(tl.int64)[:, None]
    q = tl.load(q_ptr + rows * stride_qm + offs_d[None, :], mask=rows < length, other=0.0)

    m = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)
    for first in range(0, start, BLOCK_N):
        keys = first + tl.arange(0, BLOCK_N)
        k_ptrs = k_ptr + keys.to(tl.int64)[:, None] * stride_kn + offs_d[None, :]
        v_ptrs = v_ptr + keys.to(tl.int64)[:, None] * stride_vn + offs_d[None, :]
        acc, m, d = fold(acc, m, d, q, k_ptrs, v_ptrs, offs_m, keys, length, scale, False)
    for first in tl.range(start, tl.minimum(start + BLOCK_M, length), BLOCK_N, num_stages=1):
        keys = first + tl.arange(0, BLOCK_N)
        k_ptrs = k_ptr + keys.to(tl.int64)[:, None] * stride_kn + offs_d[None, :]
        v_ptrs = v_ptr + keys.to(tl.int64)[:, None] * stride_vn + offs_d[None, :]
        acc, m, d = fold(acc, m, d, q, k_ptrs, v_ptrs, offs_m, keys, length, scale, True)

    result = (acc / d[:, None]).to(out_ptr.dtype.element_ty)
    tl.store(out_ptr + rows * stride_om + offs_d[None, :], result, mask=rows < length)


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v for each head, where a query sees its own key and those before it."""
    batch, heads, length, dim = q.shape
    out = torch.empty(q.shape, device=q.device, dtype=q.dtype) if out is None else out
    grid = lambda meta: (triton.cdiv(length, meta["BLOCK_M"]) * batch * heads,)  # noqa: E731
    scale = math.log2(math.e) / math.sqrt(dim)
    attention_kernel[grid](
        q, k, v, out, length, scale,
        q.stride(1), q.stride(2), k.stride(1), k.stride(2), v.stride(1), v.stride(2), out.stride(1), out.stride(2),
        DIM=dim,
    )  # fmt: skip
    return out
