# gpu-programming/triton-kernels/attention.py | wrong everywhere | In `fold`, `tl.dot(q, tl.reshape(k, (k.shape[1], k.shape[0])), ...)` takes a reshape for a transposition: the block of keys keeps its order in memory and only gets another shape, so the scores are products of the queries with pieces of several keys. It should be `tl.trans(k)`. Wrong for all sequences of more than one key, in all dtypes and layouts (with one key the weight is 1 all the same).
"""Causal attention without the matrix of scores: online softmax over blocks of keys, autotuned."""

import math

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, num_stages, num_warps):
    """One candidate: queries of a program and keys of a step, powers of two, pipeline depth and warps."""
    return triton.Config({"BLOCK_M": block_m, "BLOCK_N": block_n}, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 64, 2, 8),
    _config(128, 32, 3, 8),
    _config(64, 64, 2, 4),
    _config(64, 32, 3, 4),
    _config(32, 32, 2, 4),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: tiles no longer than the sequence, and the last one alone for fp32."""
    longest = 0 if named_args["q_ptr"].dtype == torch.float32 else named_args["length"]
    return [config for config in configs if config.kwargs["BLOCK_M"] <= longest] or configs[-1:]


@triton.jit
def rows_of(ptr, rows, stride, dims, length, MASKED: tl.constexpr):
    """Rows of a head, (rows, DIM); 0 past the end of the sequence where MASKED."""
    ptrs = ptr + rows.to(tl.int64)[:, None] * stride + dims[None, :]
    if MASKED:
        return tl.load(ptrs, mask=rows[:, None] < length, other=0.0)
    else:
        return tl.load(ptrs)


@triton.jit
def fold(acc, m, d, q, k, v, offs_m, keys, scale, DIAGONAL: tl.constexpr):
    """The sums acc of p * v and d of p with one more block of keys, p = exp2(scale * scores - m), and m."""
    # (BLOCK_N, DIM) has to become (DIM, BLOCK_N) for the product.
    scores = tl.dot(q, tl.reshape(k, (k.shape[1], k.shape[0])), input_precision="ieee")
    if DIAGONAL:
        scores = tl.where(offs_m[:, None] >= keys[None, :], scores, -float("inf"))
    m_new = tl.maximum(m, scale * tl.max(scores, axis=1))
    p = tl.exp2(scale * scores - m_new[:, None])
    factor = tl.exp2(m - m_new)
    acc = tl.dot(p.to(v.dtype), v, acc * factor[:, None], input_precision="ieee")
    d = d * factor + tl.sum(p, axis=1)
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
    tiles = tl.cdiv(length, BLOCK_M)
    pid = tl.program_id(axis=0)
    # The last tile of a head has the most keys, so it comes first.
    first = (tiles - 1 - pid % tiles) * BLOCK_M
    batch = (pid // tiles // heads).to(tl.int64)
    head = (pid // tiles % heads).to(tl.int64)
    q_ptr += batch * stride_qb + head * stride_qh
    k_ptr += batch * stride_kb + head * stride_kh
    v_ptr += batch * stride_vb + head * stride_vh
    out_ptr += batch * stride_ob + head * stride_oh

    dims = tl.arange(0, DIM)
    offs_m = first + tl.arange(0, BLOCK_M)
    q = rows_of(q_ptr, offs_m, stride_qm, dims, length, MASKED=True)
    m = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)

    for start in range(0, first, BLOCK_N):
        keys = start + tl.arange(0, BLOCK_N)
        k = rows_of(k_ptr, keys, stride_kn, dims, length, MASKED=False)
        v = rows_of(v_ptr, keys, stride_vn, dims, length, MASKED=False)
        acc, m, d = fold(acc, m, d, q, k, v, offs_m, keys, scale, DIAGONAL=False)
    end = tl.minimum(first + BLOCK_M, length)
    for start in tl.range(first, end, BLOCK_N, num_stages=1):
        keys = start + tl.arange(0, BLOCK_N)
        k = rows_of(k_ptr, keys, stride_kn, dims, length, MASKED=True)
        v = rows_of(v_ptr, keys, stride_vn, dims, length, MASKED=True)
        acc, m, d = fold(acc, m, d, q, k, v, offs_m, keys, scale, DIAGONAL=True)

    out_ptrs = out_ptr + offs_m.to(tl.int64)[:, None] * stride_om + dims[None, :]
    result = (acc / d[:, None]).to(out_ptr.dtype.element_ty)
    tl.store(out_ptrs, result, mask=offs_m[:, None] < length)


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v for each head, where a query sees its own key and those before it.

    q, k and v are (batch, heads, length, dim), bf16, fp16 or fp32, dim 16, 32, 64 or 128 and contiguous, any
    length from 1 on; the result goes to `out`, like q, where one is given. After Dao, arXiv:2307.08691.
    """
    if out is None:
        out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    batch, heads, length, dim = q.shape
    scale = math.log2(math.e) / math.sqrt(dim)
    strides = [stride for tensor in (q, k, v, out) for stride in tensor.stride()[:3]]
    grid = lambda meta: (batch * heads * triton.cdiv(length, meta["BLOCK_M"]),)
    attention_kernel[grid](q, k, v, out, heads, length, scale, *strides, DIM=dim)
    return out
