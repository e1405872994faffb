# gpu-programming/triton-kernels/attention.py | corner | In `attention_kernel`, `q = (q.to(tl.float32) * scale).to(q_ptr.dtype.element_ty)`: q times log2(e) / sqrt(dim) is rounded to 16 bits before the product; the fp32 scores should be multiplied by `scale` after `tl.dot`. Shows with large scores in fp16 and bf16 only (values "huge", 30 times larger queries; at most just at the tolerance in "rising"); fp32 and ordinary values are right.
"""Causal attention without the matrix of scores: online softmax over blocks of keys, autotuned."""

import math

import torch
import triton
import triton.language as tl

LOG2_E = 1.4426950408889634


def _config(block_m, block_n, num_stages, num_warps):
    """One candidate: queries of a program and keys of a step, powers of two, pipeline depth and warps."""
    return triton.Config({"BLOCK_M": block_m, "BLOCK_N": block_n}, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 128, 2, 8),
    _config(128, 64, 3, 8),
    _config(64, 64, 3, 4),
    _config(32, 32, 2, 4),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: tiles no longer than the sequence, and the last one alone for fp32."""
    longest = 0 if named_args["q_ptr"].dtype == torch.float32 else named_args["length"]
    return [config for config in configs if config.kwargs["BLOCK_M"] <= longest] or configs[-1:]


@triton.jit
def scores_of(q, k_block, offs_m, keys, length, DIAGONAL: tl.constexpr):
    """q times a block of keys, in units of log2, with -inf for the keys that a query may not see."""
    if DIAGONAL:
        k = tl.load(k_block, mask=keys[None, :] < length, other=0.0)
        s = tl.dot(q, k, input_precision="ieee")
        s = tl.where(offs_m[:, None] >= keys[None, :], s, -float("inf"))
    else:
        k = tl.load(k_block)
        s = tl.dot(q, k, input_precision="ieee")
    return s


@triton.jit
def update(acc, m, d, s, v_block, keys, length, DIAGONAL: tl.constexpr):
    """Take the scores and the values of one block into the running sums."""
    m_new = tl.maximum(m, tl.max(s, axis=1))
    p = tl.exp2(s - m_new[:, None])
    factor = tl.exp2(m - m_new)
    if DIAGONAL:
        v = tl.load(v_block, mask=keys[:, None] < length, other=0.0)
    else:
        v = tl.load(v_block)
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
    """A program owns BLOCK_M queries of one head; scale is log2(e) / sqrt(DIM)."""
    tiles = tl.cdiv(length, BLOCK_M)
    pid = tl.program_id(axis=0)
    # All heads of the last tile first: it has the most keys.
    all_heads = tl.num_programs(axis=0) // tiles
    first = (tiles - 1 - pid // all_heads) * BLOCK_M
    head = (pid % all_heads).to(tl.int64)
    b, h = head // heads, head % heads

    offs_m = first + tl.arange(0, BLOCK_M)
    lanes = tl.arange(0, BLOCK_N)
    dims = tl.arange(0, DIM)
    rows = offs_m.to(tl.int64)[:, None]
    q_rows = q_ptr + b * stride_qb + h * stride_qh + rows * stride_qm + dims[None, :]
    q = tl.load(q_rows, mask=offs_m[:, None] < length, other=0.0)
    # The factor once for each query, and not once for each score.
    q = (q.to(tl.float32) * scale).to(q_ptr.dtype.element_ty)

    k_head = k_ptr + b * stride_kb + h * stride_kh
    v_head = v_ptr + b * stride_vb + h * stride_vh
    k_offs = lanes[None, :] * stride_kn + dims[:, None]
    v_offs = lanes[:, None] * stride_vn + dims[None, :]

    m = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)
    for start in range(0, first, BLOCK_N):
        s = scores_of(q, k_head + k_offs, offs_m, start + lanes, length, False)
        acc, m, d = update(acc, m, d, s, v_head + v_offs, start + lanes, length, False)
        k_head += BLOCK_N * stride_kn
        v_head += BLOCK_N * stride_vn
    for start in tl.range(first, tl.minimum(first + BLOCK_M, length), BLOCK_N, num_stages=1):
        s = scores_of(q, k_head + k_offs, offs_m, start + lanes, length, True)
        acc, m, d = update(acc, m, d, s, v_head + v_offs, start + lanes, length, True)
        k_head += BLOCK_N * stride_kn
        v_head += BLOCK_N * stride_vn

    out_rows = out_ptr + b * stride_ob + h * stride_oh + rows * stride_om + dims[None, :]
    tl.store(out_rows, (acc / d[:, None]).to(out_ptr.dtype.element_ty), mask=offs_m[:, None] < length)


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v for each head, where a query sees its own key and those before it."""
    if out is None:
        out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    batch, heads, length, dim = q.shape

    def grid(meta):
        return (triton.cdiv(length, meta["BLOCK_M"]) * batch * heads,)

    attention_kernel[grid](
        q, k, v, out, heads, length, LOG2_E / math.sqrt(dim),
        q.stride(0), q.stride(1), q.stride(2), k.stride(0), k.stride(1), k.stride(2),
        v.stride(0), v.stride(1), v.stride(2), out.stride(0), out.stride(1), out.stride(2),
        DIM=dim,
    )  # fmt: skip
    return out
