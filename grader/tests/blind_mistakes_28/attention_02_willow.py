# gpu-programming/triton-kernels/attention.py | corner | The heuristic EVEN of attention_kernel is `length % BLOCK_N == 0`, but it also drops the masks of the queries' load and of the store, which need length % BLOCK_M == 0: where the length is a multiple of BLOCK_N and not of BLOCK_M (with these configs 16 and 48 in every dtype, odd multiples of 16 in fp32, and 80, 96, 144, 192 and the like as the autotuner chooses), the last tile writes rows past the end: into the next head, or outside of out. EVEN should ask for BLOCK_M.
"""Causal attention without the matrix of scores: online softmax over blocks of keys, autotuned."""

import math

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, num_stages, num_warps):
    """One candidate: queries of a program and keys of a step, powers of two, pipeline depth and warps."""
    return triton.Config({"BLOCK_M": block_m, "BLOCK_N": block_n}, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 64, 3, 8),
    _config(64, 64, 3, 4),
    _config(64, 32, 3, 4),
    _config(32, 16, 2, 4),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: tiles no longer than the sequence, and the last one alone for fp32."""
    longest = 0 if named_args["q_ptr"].dtype == torch.float32 else named_args["length"]
    return [config for config in configs if config.kwargs["BLOCK_M"] <= longest] or configs[-1:]


@triton.jit
def load_rows(ptrs, rows, length, MASKED: tl.constexpr):
    """Rows of a head; those past the end of the sequence are 0 where MASKED."""
    if MASKED:
        tile = tl.load(ptrs, mask=(rows < length)[:, None], other=0.0)
    else:
        tile = tl.load(ptrs)
    return tile


@triton.jit
def fold(
    acc, m, d, q, k_ptrs, v_ptrs, offs_m, keys, length, scale, DIAGONAL: tl.constexpr, MASKED: tl.constexpr
):
    """The sums acc of p * v and d of p with one more block of keys, p = exp2(scale * scores - m), and m."""
    k = load_rows(k_ptrs, keys, length, MASKED)
    scores = tl.dot(q, tl.trans(k), input_precision="ieee")
    if DIAGONAL:
        scores = tl.where(offs_m[:, None] >= keys[None, :], scores, -float("inf"))
    m_new = tl.maximum(m, scale * tl.max(scores, axis=1))
    p = tl.exp2(scale * scores - m_new[:, None])
    factor = tl.exp2(m - m_new)
    d = d * factor + tl.sum(p, axis=1)
    v = load_rows(v_ptrs, keys, length, MASKED)
    acc = tl.dot(p.to(v.dtype), v, acc * factor[:, None], input_precision="ieee")
    return acc, m_new, d


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.heuristics({"EVEN": lambda args: args["length"] % args["BLOCK_N"] == 0})
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, heads, length, scale,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_om,
    DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    """out[i, :] = sum over j <= i of softmax(q k^T)[i, j] v[j, :]; a program owns BLOCK_M rows of one head.

    Where the blocks are EVEN, nothing is past the end of the sequence and no load or store has a mask for it.
    """
    pid = tl.program_id(axis=0)
    batch, head = (pid // heads).to(tl.int64), (pid % heads).to(tl.int64)
    first = (tl.num_programs(axis=1) - 1 - tl.program_id(axis=1)) * BLOCK_M
    offs_m = first + tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    dims = tl.arange(0, DIM)[None, :]

    rows = offs_m[:, None].to(tl.int64)
    q_ptrs = q_ptr + batch * stride_qb + head * stride_qh + rows * stride_qm + dims
    out_ptrs = out_ptr + batch * stride_ob + head * stride_oh + rows * stride_om + dims
    k_ptrs = k_ptr + batch * stride_kb + head * stride_kh + offs_n[:, None] * stride_kn + dims
    v_ptrs = v_ptr + batch * stride_vb + head * stride_vh + offs_n[:, None] * stride_vn + dims

    q = load_rows(q_ptrs, offs_m, length, not EVEN)
    m = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)

    for start in tl.range(0, first, BLOCK_N):
        acc, m, d = fold(acc, m, d, q, k_ptrs, v_ptrs, offs_m, start + offs_n, length, scale, False, False)
        k_ptrs += BLOCK_N * stride_kn
        v_ptrs += BLOCK_N * stride_vn
    for start in tl.range(first, tl.minimum(first + BLOCK_M, length), BLOCK_N, num_stages=1):
        acc, m, d = fold(acc, m, d, q, k_ptrs, v_ptrs, offs_m, start + offs_n, length, scale, True, not EVEN)
        k_ptrs += BLOCK_N * stride_kn
        v_ptrs += BLOCK_N * stride_vn

    result = (acc / d[:, None]).to(out_ptr.dtype.element_ty)
    if EVEN:
        tl.store(out_ptrs, result)
    else:
        tl.store(out_ptrs, result, mask=offs_m[:, None] < length)


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v for each head, where a query sees its own key and those before it."""
    out = torch.empty_like(q, memory_format=torch.contiguous_format) if out is None else out
    batch, heads, length, dim = q.shape
    strides = [tensor.stride(axis) for tensor in (q, k, v, out) for axis in range(3)]
    attention_kernel[lambda meta: (batch * heads, triton.cdiv(length, meta["BLOCK_M"]))](
        q, k, v, out, heads, length, math.log2(math.e) / math.sqrt(dim), *strides, DIM=dim
    )
    return out
