# gpu-programming/triton-kernels/attention.py | error | The last config of CONFIGS has BLOCK_N = 8, but p @ v in fold is then a tl.dot over 8 keys, and tl.dot wants at least 16 along the summed axis: Triton's compiler refuses this config, the only one for fp32 and for sequences shorter than 64, and one of those that the autotuner tries for all others. The interpreter, which has no such limit, computes right values. It should be BLOCK_N = 16, as _config(16, 16, 2, 2).
"""Causal attention without the matrix of scores: online softmax over blocks of keys, autotuned."""

import math

import torch
import triton
import triton.language as tl

LOG2_E = math.log2(math.e)


def _config(block_m, block_n, num_stages, num_warps):
    """One candidate: queries of a program and keys of a step, powers of two, pipeline depth and warps."""
    return triton.Config({"BLOCK_M": block_m, "BLOCK_N": block_n}, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 128, 2, 8),
    _config(128, 64, 3, 8),
    _config(64, 64, 3, 4),
    _config(64, 32, 4, 4),
    _config(16, 8, 2, 2),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: tiles no longer than the sequence, and the last one alone for fp32."""
    longest = 0 if named_args["q_ptr"].dtype == torch.float32 else named_args["length"]
    return [config for config in configs if config.kwargs["BLOCK_M"] <= longest] or configs[-1:]


@triton.jit
def fold(acc, m, d, q, k_ptrs, v_ptrs, offs_m, keys, length, scale, DIAGONAL: tl.constexpr):
    """The sums acc of p * v and d of p with one more block of keys, and the new maximum."""
    if DIAGONAL:
        in_sequence = (keys < length)[:, None]
        k = tl.load(k_ptrs, mask=in_sequence, other=0.0)
        v = tl.load(v_ptrs, mask=in_sequence, other=0.0)
        scores = tl.dot(q, tl.trans(k), input_precision="ieee")
        scores = tl.where(offs_m[:, None] >= keys[None, :], scores, -float("inf"))
    else:
        k = tl.load(k_ptrs)
        v = tl.load(v_ptrs)
        scores = tl.dot(q, tl.trans(k), input_precision="ieee")
    highest = tl.maximum(m, scale * tl.max(scores, axis=1))
    p = tl.exp2(scale * scores - highest[:, None])
    factor = tl.exp2(m - highest)
    acc = tl.dot(p.to(v.dtype), v, acc * factor[:, None], input_precision="ieee")
    d = d * factor + tl.sum(p, axis=1)
    return acc, highest, d


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, heads, length, scale,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_om,
    DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """out[i, :] = sum over j <= i of softmax(q k^T)[i, j] v[j, :]; a program owns BLOCK_M rows of one head."""
    pid = tl.program_id(axis=0)
    tiles = tl.cdiv(length, BLOCK_M)
    first = (tiles - 1 - pid % tiles) * BLOCK_M
    batch = (pid // tiles // heads).to(tl.int64)
    head = (pid // tiles % heads).to(tl.int64)

    offs_m = first + tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    offs_d = tl.arange(0, DIM)
    mask_m = offs_m[:, None] < length
    q_head = q_ptr + batch * stride_qb + head * stride_qh
    k_head = k_ptr + batch * stride_kb + head * stride_kh
    v_head = v_ptr + batch * stride_vb + head * stride_vh
    out_head = out_ptr + batch * stride_ob + head * stride_oh
    q = tl.load(
        q_head + offs_m[:, None].to(tl.int64) * stride_qm + offs_d[None, :], mask=mask_m, other=0.0
    )
    k_ptrs = k_head + offs_n[:, None] * stride_kn + offs_d[None, :]
    v_ptrs = v_head + offs_n[:, None] * stride_vn + offs_d[None, :]

    m = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)
    for start in range(0, first, BLOCK_N):
        acc, m, d = fold(acc, m, d, q, k_ptrs, v_ptrs, offs_m, start + offs_n, length, scale, DIAGONAL=False)
        k_ptrs += BLOCK_N * stride_kn
        v_ptrs += BLOCK_N * stride_vn
    last = tl.minimum(first + BLOCK_M, length)
    for start in tl.range(first, last, BLOCK_N, num_stages=1):
        acc, m, d = fold(acc, m, d, q, k_ptrs, v_ptrs, offs_m, start + offs_n, length, scale, DIAGONAL=True)
        k_ptrs += BLOCK_N * stride_kn
        v_ptrs += BLOCK_N * stride_vn

    result = acc / d[:, None]
    tl.store(
        out_head + offs_m[:, None].to(tl.int64) * stride_om + offs_d[None, :],
        result.to(out_ptr.dtype.element_ty),
        mask=mask_m,
    )


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v for each head, where a query sees its own key and those before it."""
    batch, heads, length, dim = q.shape
    out = torch.empty_like(q, memory_format=torch.contiguous_format) if out is None else out
    grid = lambda meta: (batch * heads * triton.cdiv(length, meta["BLOCK_M"]),)
    attention_kernel[grid](
        q, k, v, out, heads, length, LOG2_E / math.sqrt(dim),
        q.stride(0), q.stride(1), q.stride(2), k.stride(0), k.stride(1), k.stride(2),
        v.stride(0), v.stride(1), v.stride(2), out.stride(0), out.stride(1), out.stride(2),
        DIM=dim,
    )  # fmt: skip
    return out
