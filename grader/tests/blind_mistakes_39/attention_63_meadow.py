# gpu-programming/triton-kernels/attention.py | two mistakes | (1) In `fold` the factor of the old sums is `tl.exp(m - peak)`, while scores and maximum are in units of log2(e): it should be `tl.exp2(m - peak)`. Shows in all dtypes for sequences longer than one block of keys, for queries whose maximum a later block raises. (2) In `attention_kernel` q is multiplied by scale and rounded back to its dtype before the product (`q = (... * scale).to(q_ptr.dtype.element_ty)`): with large scores (values=huge) in fp16 and bf16 the weights are wrong; fp32 and ordinary values are not affected. It should leave q as loaded, and multiply the fp32 scores by scale.
"""Causal attention without the matrix of scores: online softmax over blocks of keys, autotuned."""

import math

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, num_stages, num_warps):
    """One candidate: queries of a program and keys of a step, powers of two, pipeline depth and warps."""
    return triton.Config({"BLOCK_M": block_m, "BLOCK_N": block_n}, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [_config(128, n, stages, 8) for n, stages in ((128, 2), (64, 2), (64, 3))]
CONFIGS += [_config(64, n, 3, 4) for n in (64, 32)]
CONFIGS += [_config(16, 16, 2, 1)]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: tiles no longer than the sequence, and the last one alone for fp32."""
    # Exact fp32 runs without tensor cores, where a large tile unrolls into thousands of instructions.
    longest = 0 if named_args["q_ptr"].dtype == torch.float32 else named_args["length"]
    return [config for config in configs if config.kwargs["BLOCK_M"] <= longest] or configs[-1:]


@triton.jit
def fold(acc, m, d, q, k_ptrs, v_ptrs, offs_m, keys, length, DIAGONAL: tl.constexpr):
    """One more block of keys in the sums acc of p * v and d of p, and in the maximum m.

    k_ptrs is (DIM, BLOCK_N) and v_ptrs (BLOCK_N, DIM).
    """
    if DIAGONAL:
        k = tl.load(k_ptrs, mask=keys[None, :] < length, other=0.0)
        scores = tl.dot(q, k, input_precision="ieee")
        scores += tl.where(keys[None, :] > offs_m[:, None], -float("inf"), 0.0)
        v = tl.load(v_ptrs, mask=keys[:, None] < length, other=0.0)
    else:
        k = tl.load(k_ptrs)
        scores = tl.dot(q, k, input_precision="ieee")
        v = tl.load(v_ptrs)
    peak = tl.maximum(m, tl.max(scores, axis=1))
    p = tl.exp2(scores - peak[:, None])
    decay = tl.exp(m - peak)
    acc = acc * decay[:, None]
    acc = tl.dot(p.to(v.dtype), v, acc, input_precision="ieee")
    return acc, peak, d * decay + tl.sum(p, axis=1)


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
    before it. scale is log2(e) / sqrt(DIM). Axis 0 of the grid counts heads, axis 1 tiles from the last one.
    """
    which = tl.program_id(axis=0)
    b, h = (which // heads).to(tl.int64), (which % heads).to(tl.int64)
    q_ptr += b * stride_qb + h * stride_qh
    k_ptr += b * stride_kb + h * stride_kh
    v_ptr += b * stride_vb + h * stride_vh
    out_ptr += b * stride_ob + h * stride_oh

    begin = (tl.num_programs(axis=1) - 1 - tl.program_id(axis=1)) * BLOCK_M
    offs_m = begin + tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    dims = tl.arange(0, DIM)
    row_mask = offs_m[:, None] < length
    wide_m = offs_m[:, None].to(tl.int64)

    q = tl.load(q_ptr + wide_m * stride_qm + dims[None, :], mask=row_mask, other=0.0)
    q = (q.to(tl.float32) * scale).to(q_ptr.dtype.element_ty)
    k_block = dims[:, None] + offs_n[None, :] * stride_kn
    v_block = offs_n[:, None] * stride_vn + dims[None, :]

    m = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)
    for n in tl.range(0, begin, BLOCK_N):
        acc, m, d = fold(acc, m, d, q, k_ptr + k_block, v_ptr + v_block, offs_m, n + offs_n, length, False)
        k_ptr += BLOCK_N * stride_kn
        v_ptr += BLOCK_N * stride_vn
    end = tl.minimum(begin + BLOCK_M, length)
    for n in tl.range(begin, end, BLOCK_N, num_stages=1):
        acc, m, d = fold(acc, m, d, q, k_ptr + k_block, v_ptr + v_block, offs_m, n + offs_n, length, True)
        k_ptr += BLOCK_N * stride_kn
        v_ptr += BLOCK_N * stride_vn

    acc = acc / d[:, None]
    tl.store(out_ptr + wide_m * stride_om + dims[None, :], acc.to(out_ptr.dtype.element_ty), mask=row_mask)


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v for each head, where a query sees its own key and those before it.

    q, k and v are (batch, heads, length, dim), bf16, fp16 or fp32, dim 16, 32, 64 or 128 and contiguous, any
    length from 1 on; the result goes to `out`, like q, where one is given. After Dao, arXiv:2307.08691.
    """
    if out is None:
        out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    batch, heads, length, dim = q.shape

    def grid(meta):
        return batch * heads, triton.cdiv(length, meta["BLOCK_M"])

    attention_kernel[grid](
        q, k, v, out, heads, length, math.log2(math.e) * dim**-0.5,
        *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *out.stride()[:3],
        DIM=dim,
    )  # fmt: skip
    return out
