# gpu-programming/triton-kernels/attention.py | wrong everywhere | In `fold` the block of keys (BLOCK_N, DIM) is brought to (DIM, BLOCK_N) with tl.reshape, which keeps the order of the elements in memory and so mixes keys and dimensions, in place of a transposition. All scores are wrong; only query 0, which has one key, is right, and so is a sequence of length 1. It should be tl.trans(k) (or k.T).
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
    _config(32, 32, 2, 4),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: tiles no longer than the sequence, and the last one alone for fp32."""
    # Exact fp32 runs without tensor cores, where a large tile unrolls into thousands of instructions.
    longest = 0 if named_args["q_ptr"].dtype == torch.float32 else named_args["length"]
    return [config for config in configs if config.kwargs["BLOCK_M"] <= longest] or configs[-1:]


@triton.jit
def fold(acc, m, d, q, k_ptrs, v_ptrs, offs_m, keys, length, scale, DIAGONAL: tl.constexpr):
    """The sums acc of p * v and d of p with one more block of keys, p = exp2(scale * scores - m), and m."""
    if DIAGONAL:
        exists = (keys < length)[:, None]
        k = tl.load(k_ptrs, mask=exists, other=0.0)
        v = tl.load(v_ptrs, mask=exists, other=0.0)
    else:
        k = tl.load(k_ptrs)
        v = tl.load(v_ptrs)
    columns = tl.reshape(k, (k.shape[1], k.shape[0]))
    scores = tl.dot(q, columns, input_precision="ieee") * scale
    if DIAGONAL:
        scores = tl.where(offs_m[:, None] >= keys[None, :], scores, -float("inf"))
    m_new = tl.maximum(m, tl.max(scores, axis=1))
    p = tl.exp2(scores - m_new[:, None])
    shrink = tl.exp2(m - m_new)
    d = d * shrink + tl.sum(p, axis=1)
    acc = tl.dot(p.to(v.dtype), v, acc * shrink[:, None], input_precision="ieee")
    return acc, m_new, d


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, heads, length, scale,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_om,
    DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """out[i, :] = sum over j <= i of softmax(q k^T)[i, j] v[j, :]; a program owns BLOCK_M rows of one head.

    q, k, v and out are (batch, heads, length, DIM), of one dtype, the last dimension contiguous, any strides
    before it. scale is log2(e) / sqrt(DIM).
    """
    pid = tl.program_id(axis=0)
    tiles = tl.cdiv(length, BLOCK_M)
    sequences = tl.num_programs(axis=0) // tiles
    first = (tiles - 1 - pid // sequences) * BLOCK_M
    batch = ((pid % sequences) // heads).to(tl.int64)
    head = ((pid % sequences) % heads).to(tl.int64)

    offs_m = first + tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    offs_d = tl.arange(0, DIM)
    real = (offs_m < length)[:, None]
    rows = offs_m.to(tl.int64)[:, None]

    q_head = q_ptr + batch * stride_qb + head * stride_qh
    out_head = out_ptr + batch * stride_ob + head * stride_oh
    # One pointer for each of k and v moves; the offsets inside a block stay.
    k_at = k_ptr + batch * stride_kb + head * stride_kh
    v_at = v_ptr + batch * stride_vb + head * stride_vh
    k_offs = offs_n[:, None] * stride_kn + offs_d[None, :]
    v_offs = offs_n[:, None] * stride_vn + offs_d[None, :]
    q = tl.load(q_head + rows * stride_qm + offs_d[None, :], mask=real, other=0.0)

    m = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)
    for start in tl.range(0, first, BLOCK_N):
        acc, m, d = fold(
            acc, m, d, q, k_at + k_offs, v_at + v_offs, offs_m, start + offs_n, length, scale, DIAGONAL=False
        )
        k_at += BLOCK_N * stride_kn
        v_at += BLOCK_N * stride_vn
    for start in tl.range(first, tl.minimum(first + BLOCK_M, length), BLOCK_N, num_stages=1):
        acc, m, d = fold(
            acc, m, d, q, k_at + k_offs, v_at + v_offs, offs_m, start + offs_n, length, scale, DIAGONAL=True
        )
        k_at += BLOCK_N * stride_kn
        v_at += BLOCK_N * stride_vn
    result = acc / d[:, None]
    tl.store(out_head + rows * stride_om + offs_d[None, :], result.to(out_ptr.dtype.element_ty), mask=real)


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v for each head, where a query sees its own key and those before it.

    q, k and v are (batch, heads, length, dim), bf16, fp16 or fp32, dim 16, 32, 64 or 128 and contiguous, any
    length from 1 on; the result goes to `out`, like q, where one is given. After Dao, arXiv:2307.08691.
    """
    batch, heads, length, dim = q.shape
    out = q.new_empty((batch, heads, length, dim)) if out is None else out
    strides = [tensor.stride(axis) for tensor in (q, k, v, out) for axis in range(3)]
    scale = math.log2(math.e) / math.sqrt(dim)
    attention_kernel[lambda meta: (batch * heads * triton.cdiv(length, meta["BLOCK_M"]),)](
        q, k, v, out, heads, length, scale, *strides, DIM=dim
    )
    return out
