# gpu-programming/triton-kernels/attention.py | corner | in `attention_kernel`, `q = (q.to(tl.float32) * scale).to(q.dtype)` rounds the scaled queries to 16 bits before the product; the error of a score grows with the score, so in fp16 and bf16 with large scores (queries 30 times as large, say) the weights are off by percents, most where two keys nearly tie, while ordinary values and fp32 stay within the tolerance; it should leave q as loaded and multiply the fp32 scores by scale
"""Causal attention without the matrix of scores: online softmax over blocks of keys, autotuned."""

import math

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, num_stages, num_warps):
    """One candidate: queries of a program and keys of a step, powers of two, pipeline depth and warps."""
    return triton.Config({"BLOCK_M": block_m, "BLOCK_N": block_n}, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [_config(*shape) for shape in ((128, 64, 3, 8), (64, 64, 3, 4), (64, 32, 4, 4), (16, 16, 2, 2))]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: tiles no longer than the sequence, and the last one alone for fp32."""
    # Exact fp32 runs without tensor cores, where a large tile unrolls into thousands of instructions.
    longest = 0 if named_args["q_ptr"].dtype == torch.float32 else named_args["length"]
    return [config for config in configs if config.kwargs["BLOCK_M"] <= longest] or configs[-1:]


@triton.jit
def origin(ptr, batch, head, stride_b, stride_h):
    """Where one head of a tensor begins; batch and head are int64."""
    return ptr + batch * stride_b + head * stride_h


@triton.jit
def fold(acc, m, d, q, k_block, v_block, offs_m, keys, length, DIAGONAL: tl.constexpr):
    """One more block of keys; k_block is (DIM, BLOCK_N) pointers, v_block (BLOCK_N, DIM)."""
    if DIAGONAL:
        k = tl.load(k_block, mask=(keys < length)[None, :], other=0.0)
        s = tl.dot(q, k, input_precision="ieee")
        s = tl.where(keys[None, :] <= offs_m[:, None], s, -float("inf"))
        v = tl.load(v_block, mask=(keys < length)[:, None], other=0.0)
    else:
        s = tl.dot(q, tl.load(k_block), input_precision="ieee")
        v = tl.load(v_block)
    m_new = tl.maximum(m, tl.max(s, axis=1))
    shrink = tl.exp2(m - m_new)
    p = tl.exp2(s - m_new[:, None])
    d = shrink * d + tl.sum(p, axis=1)
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

    Exponents are to the base 2: scale is log2(e) / sqrt(DIM). Program numbers run over all heads first, then
    over tiles of queries, from the end of the sequence to its start.
    """
    number = tl.program_id(axis=0)
    tiles = tl.cdiv(length, BLOCK_M)
    all_heads = tl.num_programs(axis=0) // tiles
    first = (tiles - 1 - number // all_heads) * BLOCK_M
    which = number % all_heads
    batch, head = (which // heads).to(tl.int64), (which % heads).to(tl.int64)

    dims = tl.arange(0, DIM)
    offs_m = first + tl.arange(0, BLOCK_M)
    rows = offs_m.to(tl.int64)[:, None]
    real = (offs_m < length)[:, None]
    q_head = origin(q_ptr, batch, head, stride_qb, stride_qh)
    q = tl.load(q_head + rows * stride_qm + dims[None, :], mask=real, other=0.0)
    q = (q.to(tl.float32) * scale).to(q.dtype)

    within = tl.arange(0, BLOCK_N)
    far = within.to(tl.int64)
    k_offs = far[None, :] * stride_kn + dims[:, None]
    v_offs = far[:, None] * stride_vn + dims[None, :]
    k_at = origin(k_ptr, batch, head, stride_kb, stride_kh)
    v_at = origin(v_ptr, batch, head, stride_vb, stride_vh)
    k_step = tl.cast(stride_kn, tl.int64) * BLOCK_N
    v_step = tl.cast(stride_vn, tl.int64) * BLOCK_N

    m = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)
    for start in range(0, first, BLOCK_N):
        keys = start + within
        acc, m, d = fold(acc, m, d, q, k_at + k_offs, v_at + v_offs, offs_m, keys, length, False)
        k_at += k_step
        v_at += v_step
    for start in tl.range(first, tl.minimum(first + BLOCK_M, length), BLOCK_N, num_stages=1):
        keys = start + within
        acc, m, d = fold(acc, m, d, q, k_at + k_offs, v_at + v_offs, offs_m, keys, length, True)
        k_at += k_step
        v_at += v_step

    result = (acc / d[:, None]).to(out_ptr.dtype.element_ty)
    out_head = origin(out_ptr, batch, head, stride_ob, stride_oh)
    tl.store(out_head + rows * stride_om + dims[None, :], result, mask=real)


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v for each head, where a query sees its own key and those before it."""
    if out is None:
        out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    batch, heads, length, dim = q.shape
    strides = [step for tensor in (q, k, v, out) for step in tensor.stride()[:3]]
    grid = lambda meta: (batch * heads * triton.cdiv(length, meta["BLOCK_M"]),)  # noqa: E731
    attention_kernel[grid](q, k, v, out, heads, length, math.log2(math.e) * dim**-0.5, *strides, DIM=dim)
    return out
