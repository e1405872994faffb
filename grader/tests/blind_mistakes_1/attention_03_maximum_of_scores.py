# gpu-programming/triton-kernels/attention.py | corner | `top = tl.maximum(m, tl.max(s, 1))` takes the maximum of the scores before they are multiplied by scale, but p = exp2(s * scale - top): the factor 2**top cancels on paper, but with large scores p underflows to 0 (0/0 = NaN) where the maximum is positive, or overflows to inf where a row's scores are all very negative | "m_new = larger of m and scale times the row maximum", m must be the maximum of what is in the exponent; shows for large scores (large q or k) in every dtype, and in fp16 also for ordinary inputs in some elements, because p in fp16 is then far below 1 and underflows; fp32 with ordinary inputs is right
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
    _config(32, 16, 2, 2),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: tiles no longer than the sequence, and the last one alone for fp32."""
    longest = 0 if named_args["q_ptr"].dtype == torch.float32 else named_args["length"]
    return [config for config in configs if config.kwargs["BLOCK_M"] <= longest] or configs[-1:]


@triton.jit
def weights(s, m, d, scale):
    """p of a block of scores, the new maximum and sum, and the factor for what was summed before."""
    top = tl.maximum(m, tl.max(s, 1))
    p = tl.exp2(s * scale - top[:, None])
    shrink = tl.exp2(m - top)
    return p, top, d * shrink + tl.sum(p, 1), shrink


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, heads, length, scale,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_om,
    DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """out[i, :] = sum over j <= i of softmax(q k^T)[i, j] v[j, :]; a program owns BLOCK_M rows of one head."""
    # grid: tiles, heads, batch
    first = (tl.num_programs(0) - 1 - tl.program_id(0)) * BLOCK_M
    h, b = tl.program_id(1).to(tl.int64), tl.program_id(2).to(tl.int64)
    i = first + tl.arange(0, BLOCK_M)
    j = tl.arange(0, BLOCK_N)
    e = tl.arange(0, DIM)
    q_off = b * stride_qb + h * stride_qh + i[:, None].to(tl.int64) * stride_qm + e[None, :]
    q = tl.load(q_ptr + q_off, mask=i[:, None] < length, other=0.0)
    k_head = k_ptr + b * stride_kb + h * stride_kh + e[:, None]
    v_head = v_ptr + b * stride_vb + h * stride_vh + e[None, :]

    m = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)
    # below the diagonal
    for n in range(0, first, BLOCK_N):
        keys = (n + j).to(tl.int64)
        s = tl.dot(q, tl.load(k_head + keys[None, :] * stride_kn), input_precision="ieee")
        p, m, d, shrink = weights(s, m, d, scale)
        v = tl.load(v_head + keys[:, None] * stride_vn)
        acc = tl.dot(p.to(v.dtype), v, acc * shrink[:, None], input_precision="ieee")
    # on the diagonal
    for n in tl.range(first, min(first + BLOCK_M, length), BLOCK_N, num_stages=1):
        keys = (n + j).to(tl.int64)
        k = tl.load(k_head + keys[None, :] * stride_kn, mask=keys[None, :] < length, other=0.0)
        s = tl.dot(q, k, input_precision="ieee")
        s = tl.where(i[:, None] >= keys[None, :], s, -float("inf"))
        p, m, d, shrink = weights(s, m, d, scale)
        v = tl.load(v_head + keys[:, None] * stride_vn, mask=keys[:, None] < length, other=0.0)
        acc = tl.dot(p.to(v.dtype), v, acc * shrink[:, None], input_precision="ieee")

    o_off = b * stride_ob + h * stride_oh + i[:, None].to(tl.int64) * stride_om + e[None, :]
    tl.store(out_ptr + o_off, (acc / d[:, None]).to(out_ptr.dtype.element_ty), mask=i[:, None] < length)


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v for each head, where a query sees its own key and those before it."""
    out = torch.empty_like(q) if out is None else out
    batch, heads, length, dim = q.shape

    def grid(meta):
        return triton.cdiv(length, meta["BLOCK_M"]), heads, batch

    scale = math.log2(math.e) / math.sqrt(dim)
    sq, sk, sv, so = q.stride(), k.stride(), v.stride(), out.stride()
    attention_kernel[grid](
        q, k, v, out, heads, length, scale,
        sq[0], sq[1], sq[2], sk[0], sk[1], sk[2], sv[0], sv[1], sv[2], so[0], so[1], so[2], DIM=dim,
    )  # fmt: skip
    return out
