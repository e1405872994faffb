# gpu-programming/triton-kernels/attention.py | error | fold treats m and d as columns of shape (BLOCK_M, 1) (keep_dims=True, no [:, None]), but attention_kernel starts them as vectors of shape (BLOCK_M,): tl.maximum(m, column) becomes (BLOCK_M, BLOCK_M), and scale * scores - m_new, (BLOCK_M, BLOCK_N) against (BLOCK_M, BLOCK_M), cannot be broadcast, because BLOCK_N is half of BLOCK_M in every config. It does not compile, in every case. m and d should start as (BLOCK_M, 1)
"""Causal attention without the matrix of scores: online softmax over blocks of keys, autotuned."""

import math

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, num_stages, num_warps):
    """One candidate: queries of a program and keys of a step, powers of two, pipeline depth and warps."""
    return triton.Config({"BLOCK_M": block_m, "BLOCK_N": block_n}, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [_config(128, 64, 3, 8), _config(128, 64, 2, 8), _config(64, 32, 3, 4), _config(32, 16, 2, 4)]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: tiles no longer than the sequence, and the last one alone for fp32."""
    longest = 0 if named_args["q_ptr"].dtype == torch.float32 else named_args["length"]
    return [config for config in configs if config.kwargs["BLOCK_M"] <= longest] or configs[-1:]


@triton.jit
def fold(acc, m, d, q, k_ptrs, v_ptrs, offs_m, keys, length, scale, DIAGONAL: tl.constexpr):
    """The sums acc of p * v and d of p with one more block of keys, p = exp2(scale * scores - m), and m."""
    if DIAGONAL:
        k = tl.load(k_ptrs, mask=keys[:, None] < length, other=0.0)
        v = tl.load(v_ptrs, mask=keys[:, None] < length, other=0.0)
    else:
        k, v = tl.load(k_ptrs), tl.load(v_ptrs)
    scores = tl.dot(q, tl.trans(k), input_precision="ieee")
    if DIAGONAL:
        scores = tl.where(offs_m[:, None] >= keys[None, :], scores, -float("inf"))
    m_new = tl.maximum(m, scale * tl.max(scores, axis=1, keep_dims=True))
    p = tl.exp2(scale * scores - m_new)
    factor = tl.exp2(m - m_new)
    d = d * factor + tl.sum(p, axis=1, keep_dims=True)
    acc = acc * factor + tl.dot(p.to(v.dtype), v, input_precision="ieee")
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
    # Programs count the heads first and the tiles last, from the end of the sequence to its beginning.
    tiles = tl.cdiv(length, BLOCK_M)
    together = tl.num_programs(axis=0) // tiles
    pid = tl.program_id(axis=0)
    begin = (tiles - 1 - pid // together) * BLOCK_M
    which = (pid % together).to(tl.int64)
    batch, head = which // heads, which % heads
    q_ptr += batch * stride_qb + head * stride_qh
    k_ptr += batch * stride_kb + head * stride_kh
    v_ptr += batch * stride_vb + head * stride_vh
    out_ptr += batch * stride_ob + head * stride_oh
    offs_m, offs_n, offs_d = begin + tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_N), tl.arange(0, DIM)
    rows = offs_m.to(tl.int64)[:, None]
    q = tl.load(q_ptr + rows * stride_qm + offs_d[None, :], mask=rows < length, other=0.0)
    k_block = offs_n[:, None] * stride_kn + offs_d[None, :]
    v_block = offs_n[:, None] * stride_vn + offs_d[None, :]
    m = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)
    for start in tl.range(0, begin, BLOCK_N):
        acc, m, d = fold(
            acc, m, d, q, k_ptr + k_block, v_ptr + v_block, offs_m, start + offs_n, length, scale, DIAGONAL=False
        )
        k_ptr += BLOCK_N * stride_kn
        v_ptr += BLOCK_N * stride_vn
    for start in tl.range(begin, tl.minimum(begin + BLOCK_M, length), BLOCK_N, num_stages=1):
        acc, m, d = fold(
            acc, m, d, q, k_ptr + k_block, v_ptr + v_block, offs_m, start + offs_n, length, scale, DIAGONAL=True
        )
        k_ptr += BLOCK_N * stride_kn
        v_ptr += BLOCK_N * stride_vn
    result = (acc / d).to(out_ptr.dtype.element_ty)
    tl.store(out_ptr + rows * stride_om + offs_d[None, :], result, mask=rows < length)


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v for each head, where a query sees its own key and those before it."""
    if out is None:
        out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    batch, heads, length, dim = q.shape
    grid = lambda meta: (triton.cdiv(length, meta["BLOCK_M"]) * batch * heads,)  # noqa: E731
    attention_kernel[grid](
        q, k, v, out, heads, length, math.log2(math.e) / math.sqrt(dim),
        *[q.stride(i) for i in range(3)], *[k.stride(i) for i in range(3)],
        *[v.stride(i) for i in range(3)], *[out.stride(i) for i in range(3)],
        DIM=dim,
    )  # fmt: skip
    return out
