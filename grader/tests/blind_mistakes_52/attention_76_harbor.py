# gpu-programming/triton-kernels/attention.py | error | `acc = tl.dot(p, v, acc * factor[:, None], input_precision="ieee")` in both loops of `attention_kernel`: p is fp32, and tl.dot wants both operands in the same dtype; it should be `p.to(v.dtype)`. Does not compile in fp16 and bf16 (both operands must be same dtype); fp32 is right.
"""Causal attention where a program takes a long and a short tile of queries, so that all have the same work."""

import math

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, num_stages, num_warps):
    return triton.Config({"BLOCK_M": block_m, "BLOCK_N": block_n}, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 64, 2, 8),
    _config(128, 64, 3, 8),
    _config(64, 64, 3, 4),
    _config(64, 64, 2, 4),
    _config(32, 32, 2, 4),
]


def fitting(configs, named_args, **kwargs):
    """Tiles no longer than the sequence, and the last one alone for fp32."""
    longest = 0 if named_args["q_ptr"].dtype == torch.float32 else named_args["length"]
    return [config for config in configs if config.kwargs["BLOCK_M"] <= longest] or configs[-1:]


@triton.jit
def weigh(scores, m, d, scale):
    """Weights relative to the new maximum, that maximum, the new denominator, and the factor of older sums."""
    m_new = tl.maximum(m, tl.max(scores, axis=1) * scale)
    p = tl.exp2(scores * scale - m_new[:, None])
    factor = tl.exp2(m - m_new)
    return p, m_new, d * factor + tl.sum(p, axis=1), factor


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, heads, length, scale,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_om,
    DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Program i of a head owns its tiles i and tiles - 1 - i, which are one and the same in the middle."""
    tiles = tl.cdiv(length, BLOCK_M)
    pairs = tl.cdiv(tiles, 2)
    pid = tl.program_id(axis=0)
    batch, head = (pid // pairs // heads).to(tl.int64), (pid // pairs % heads).to(tl.int64)
    short = pid % pairs
    q_head = q_ptr + batch * stride_qb + head * stride_qh
    k_head = k_ptr + batch * stride_kb + head * stride_kh
    v_head = v_ptr + batch * stride_vb + head * stride_vh
    out_head = out_ptr + batch * stride_ob + head * stride_oh
    dims, block = tl.arange(0, DIM), tl.arange(0, BLOCK_N)

    for tile in range(short, tiles - short, tl.maximum(tiles - 1 - 2 * short, 1)):
        first = tile * BLOCK_M
        rows = first + tl.arange(0, BLOCK_M)
        exists = rows[:, None] < length
        row_offsets = rows.to(tl.int64)[:, None]
        q = tl.load(q_head + row_offsets * stride_qm + dims[None, :], mask=exists, other=0.0)
        m = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
        d = tl.zeros((BLOCK_M,), dtype=tl.float32)
        acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)

        for start in tl.range(0, first, BLOCK_N):
            keys = (start + block).to(tl.int64)
            k = tl.load(k_head + keys[None, :] * stride_kn + dims[:, None])
            v = tl.load(v_head + keys[:, None] * stride_vn + dims[None, :])
            scores = tl.dot(q, k, input_precision="ieee")
            p, m, d, factor = weigh(scores, m, d, scale)
            acc = tl.dot(p, v, acc * factor[:, None], input_precision="ieee")

        for start in tl.range(first, tl.minimum(first + BLOCK_M, length), BLOCK_N, num_stages=1):
            keys = start + block
            inside, key_offsets = keys < length, keys.to(tl.int64)
            k = tl.load(k_head + key_offsets[None, :] * stride_kn + dims[:, None], mask=inside[None, :], other=0.0)
            v = tl.load(v_head + key_offsets[:, None] * stride_vn + dims[None, :], mask=inside[:, None], other=0.0)
            scores = tl.dot(q, k, input_precision="ieee")
            scores = tl.where(rows[:, None] >= keys[None, :], scores, -float("inf"))
            p, m, d, factor = weigh(scores, m, d, scale)
            acc = tl.dot(p, v, acc * factor[:, None], input_precision="ieee")

        result = (acc / d[:, None]).to(out_ptr.dtype.element_ty)
        tl.store(out_head + row_offsets * stride_om + dims[None, :], result, mask=exists)


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v for each head, where a query sees its own key and those before it."""
    batch, heads, length, dim = q.shape
    if out is None:
        out = torch.empty((batch, heads, length, dim), dtype=q.dtype, device=q.device)

    def pairs(meta):
        return (triton.cdiv(triton.cdiv(length, meta["BLOCK_M"]), 2) * batch * heads,)

    attention_kernel[pairs](
        q, k, v, out, heads, length, math.log2(math.e) / math.sqrt(dim),
        q.stride(0), q.stride(1), q.stride(2), k.stride(0), k.stride(1), k.stride(2),
        v.stride(0), v.stride(1), v.stride(2), out.stride(0), out.stride(1), out.stride(2),
        DIM=dim,
    )  # fmt: skip
    return out
