# gpu-programming/triton-kernels/attention.py | corner | attention passes no batch stride, and attention_kernel finds a head at `plane * stride_h` with plane = batch * heads + head; this needs a batch stride of heads * stride_h, so it is right for contiguous and for row-padded tensors and for batch 1, and wrong for batch > 1 where heads lie side by side at each position (the heads of the second batch are read from, and written to, later positions of the first one, and the second batch of out stays unwritten), or where batches are further apart; it should be batch * stride_b + head * stride_h for each tensor
"""Causal attention: a program owns some queries of one head, and hides keys only in the blocks that need it."""

import math

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, num_stages, num_warps):
    return triton.Config(
        {"BLOCK_M": block_m, "BLOCK_N": block_n}, num_stages=num_stages, num_warps=num_warps
    )


CONFIGS = [_config(*tile) for tile in ((128, 64, 3, 8), (64, 64, 3, 4), (64, 32, 3, 4), (16, 32, 2, 2))]


def fitting(configs, named_args, **kwargs):
    """Only tiles that the sequence fills; the last one for all the rest, and for fp32."""
    if named_args["q_ptr"].dtype == torch.float32 or named_args["length"] < 64:
        return configs[-1:]
    return [c for c in configs[:-1] if c.kwargs["BLOCK_M"] <= named_args["length"]]


@triton.jit
def fold(acc, m, d, scores, v):
    """The sums acc and d, both relative to exp(m), after one more block of keys."""
    m_new = tl.maximum(m, tl.max(scores, axis=1))
    p = tl.exp(scores - m_new[:, None])
    rescale = tl.exp(m - m_new)
    acc = acc * rescale[:, None]
    acc = tl.dot(p.to(v.dtype), v, acc, input_precision="ieee")
    d = d * rescale + tl.sum(p, axis=1)
    return acc, m_new, d


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, planes, length, scale,
    stride_qh, stride_qm, stride_kh, stride_kn, stride_vh, stride_vn, stride_oh, stride_om,
    DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """planes is the number of heads of all batches; the last queries have the most keys and come first."""
    pid = tl.program_id(axis=0)
    plane = (pid % planes).to(tl.int64)
    first = (tl.num_programs(axis=0) // planes - 1 - pid // planes) * BLOCK_M
    offs_m = first + tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    offs_d = tl.arange(0, DIM)
    far_m = offs_m.to(tl.int64)
    rows = offs_m[:, None] < length

    q = tl.load(
        q_ptr + plane * stride_qh + far_m[:, None] * stride_qm + offs_d[None, :], mask=rows, other=0.0
    )
    k_ptrs = k_ptr + plane * stride_kh + offs_n[None, :] * stride_kn + offs_d[:, None]
    v_ptrs = v_ptr + plane * stride_vh + offs_n[:, None] * stride_vn + offs_d[None, :]

    m = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)
    for start in tl.range(0, tl.minimum(first + BLOCK_M, length), BLOCK_N):
        keys = start + offs_n
        k = tl.load(k_ptrs, mask=keys[None, :] < length, other=0.0)
        v = tl.load(v_ptrs, mask=keys[:, None] < length, other=0.0)
        scores = tl.dot(q, k, input_precision="ieee") * scale
        if start + BLOCK_N > first:
            scores = tl.where(offs_m[:, None] >= keys[None, :], scores, -float("inf"))
        acc, m, d = fold(acc, m, d, scores, v)
        k_ptrs += BLOCK_N * stride_kn
        v_ptrs += BLOCK_N * stride_vn

    out_ptrs = out_ptr + plane * stride_oh + far_m[:, None] * stride_om + offs_d[None, :]
    tl.store(out_ptrs, (acc / d[:, None]).to(out_ptr.dtype.element_ty), mask=rows)


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v, causal, for each head of each batch."""
    batch, heads, length, dim = q.shape
    planes = batch * heads
    if out is None:
        out = torch.empty_like(q, memory_format=torch.contiguous_format)

    grid = lambda meta: (planes * triton.cdiv(length, meta["BLOCK_M"]),)  # noqa: E731
    attention_kernel[grid](
        q, k, v, out, planes, length, 1.0 / math.sqrt(dim),
        q.stride(1), q.stride(2), k.stride(1), k.stride(2),
        v.stride(1), v.stride(2), out.stride(1), out.stride(2),
        DIM=dim,
    )  # fmt: skip
    return out
