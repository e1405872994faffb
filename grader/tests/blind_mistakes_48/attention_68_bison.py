# gpu-programming/triton-kernels/attention.py | corner | `attention` passes only `tensor.stride(1), tensor.stride(2)`, and the kernel takes head number batch * heads + head times the head stride (`head * stride_qh`, likewise k, v, out): this supposes stride(0) == heads * stride(1). It should decode batch and head and use stride(0), too. Right for batch 1 and for contiguous or row-padded heads; wrong for batch > 1 where heads lie side by side at each position (swapped layout) of any of the four tensors, as (2, 3, 40, 16).
"""Causal attention without the matrix of scores: online softmax over blocks of keys, autotuned."""

import math

import torch
import triton
import triton.language as tl

# Queries of a program, keys of a step, stages and warps; the last one is for short sequences and fp32.
CONFIGS = [
    triton.Config({"BLOCK_M": m, "BLOCK_N": n}, num_stages=stages, num_warps=warps)
    for m, n, stages, warps in (
        (128, 128, 2, 8), (128, 64, 3, 8), (64, 64, 3, 4), (64, 32, 4, 4), (32, 32, 2, 4),
    )
]  # fmt: skip


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: tiles no longer than the sequence, and the last one alone for fp32."""
    longest = 0 if named_args["q_ptr"].dtype == torch.float32 else named_args["length"]
    return [config for config in configs if config.kwargs["BLOCK_M"] <= longest] or configs[-1:]


@triton.jit
def online(scores, m, scale):
    """The weights of one block of keys, the factor of what was summed before it, and the new maximum."""
    m_new = tl.maximum(m, scale * tl.max(scores, axis=1))
    return tl.exp2(scale * scores - m_new[:, None]), tl.exp2(m - m_new), m_new


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, length, scale,
    stride_qh, stride_qm, stride_kh, stride_kn,
    stride_vh, stride_vn, stride_oh, stride_om,
    DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """out[i, :] = sum over j <= i of softmax(q k^T)[i, j] v[j, :]; a program owns BLOCK_M rows of one head.

    scale is log2(e) / sqrt(DIM). The tiles with the most keys come first in each head.
    """
    tiles = tl.cdiv(length, BLOCK_M)
    number = tl.program_id(axis=0)
    head = (number // tiles).to(tl.int64)
    first = (tiles - 1 - number % tiles) * BLOCK_M

    dims = tl.arange(0, DIM)[None, :]
    queries = first + tl.arange(0, BLOCK_M)
    exists = (queries < length)[:, None]
    rows = queries.to(tl.int64)[:, None]
    q = tl.load(q_ptr + head * stride_qh + rows * stride_qm + dims, mask=exists, other=0.0)

    # One pointer each that moves, and a fixed block of offsets.
    k_block = k_ptr + head * stride_kh
    v_block = v_ptr + head * stride_vh
    step = tl.arange(0, BLOCK_N)
    k_offsets = step[:, None] * stride_kn + dims
    v_offsets = step[:, None] * stride_vn + dims

    m = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)

    for _ in tl.range(0, first, BLOCK_N):
        k = tl.load(k_block + k_offsets)
        p, factor, m = online(tl.dot(q, tl.trans(k), input_precision="ieee"), m, scale)
        v = tl.load(v_block + v_offsets)
        acc = tl.dot(p.to(v.dtype), v, acc * factor[:, None], input_precision="ieee")
        d = d * factor + tl.sum(p, axis=1)
        k_block += BLOCK_N * stride_kn
        v_block += BLOCK_N * stride_vn

    for start in tl.range(first, tl.minimum(first + BLOCK_M, length), BLOCK_N, num_stages=1):
        keys = start + step
        inside = (keys < length)[:, None]
        k = tl.load(k_block + k_offsets, mask=inside, other=0.0)
        scores = tl.dot(q, tl.trans(k), input_precision="ieee")
        scores = tl.where(queries[:, None] >= keys[None, :], scores, -float("inf"))
        p, factor, m = online(scores, m, scale)
        v = tl.load(v_block + v_offsets, mask=inside, other=0.0)
        acc = tl.dot(p.to(v.dtype), v, acc * factor[:, None], input_precision="ieee")
        d = d * factor + tl.sum(p, axis=1)
        k_block += BLOCK_N * stride_kn
        v_block += BLOCK_N * stride_vn

    result = (acc * (1.0 / d)[:, None]).to(out_ptr.dtype.element_ty)
    tl.store(out_ptr + head * stride_oh + rows * stride_om + dims, result, mask=exists)


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v for each head, where a query sees its own key and those before it.

    q, k and v are (batch, heads, length, dim), bf16, fp16 or fp32, dim 16, 32, 64 or 128 and contiguous, any
    length from 1 on; the result goes to `out`, like q, where one is given. After Dao, arXiv:2307.08691.
    """
    if out is None:
        out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    batch, heads, length, dim = q.shape
    scale = math.log2(math.e) / math.sqrt(dim)
    strides = [stride for tensor in (q, k, v, out) for stride in (tensor.stride(1), tensor.stride(2))]
    attention_kernel[lambda meta: (batch * heads * triton.cdiv(length, meta["BLOCK_M"]),)](
        q, k, v, out, length, scale, *strides, DIM=dim
    )
    return out
