# gpu-programming/triton-kernels/attention.py | right | right
"""Causal attention without the matrix of scores: online softmax over blocks of keys, autotuned."""

import math

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, num_stages, num_warps):
    """One candidate: queries of a program and keys of a step, powers of two, pipeline depth and warps."""
    return triton.Config({"BLOCK_M": block_m, "BLOCK_N": block_n}, num_stages=num_stages, num_warps=num_warps)


# Scores and result of a tile are in registers together: 128 queries want 8 warps. BLOCK_N divides BLOCK_M.
SHAPES = ((128, 128, 2, 8), (128, 64, 3, 8), (64, 64, 3, 4), (32, 32, 2, 4))
CONFIGS = [_config(*shape) for shape in SHAPES]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: tiles no longer than the sequence, and the last one alone for fp32."""
    # Exact fp32 runs without tensor cores, where a large tile unrolls into thousands of instructions.
    longest = 0 if named_args["q_ptr"].dtype == torch.float32 else named_args["length"]
    return [config for config in configs if config.kwargs["BLOCK_M"] <= longest] or configs[-1:]


@triton.jit
def take(acc, m, d, scores, v, scale):
    """Add a block of keys with these raw scores, -inf where hidden, and these values to acc and d.

    m is in units of scale * score.
    """
    m_new = tl.maximum(m, tl.max(scores, axis=1) * scale)
    p = tl.exp2(scores * scale - m_new[:, None])
    shrink = tl.exp2(m - m_new)
    acc = tl.dot(p.to(v.dtype), v, acc * shrink[:, None], input_precision="ieee")
    return acc, m_new, d * shrink + tl.sum(p, axis=1)


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
    before it. scale is log2(e) / sqrt(DIM). Every query sees a key in the first block at the diagonal, so m is
    finite from there on, and the keys before the tile may follow in any order.
    """
    which = tl.program_id(axis=0)
    batch, head = (which // heads).to(tl.int64), (which % heads).to(tl.int64)
    first = (tl.num_programs(axis=1) - 1 - tl.program_id(axis=1)) * BLOCK_M
    first_long = first.to(tl.int64)

    lane_m, lane_n, lane_d = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_N), tl.arange(0, DIM)
    exists = (first + lane_m < length)[:, None]
    q_tile = q_ptr + batch * stride_qb + head * stride_qh + first_long * stride_qm
    q = tl.load(q_tile + lane_m[:, None] * stride_qm + lane_d[None, :], mask=exists, other=0.0)

    k_block = lane_d[:, None] + lane_n[None, :] * stride_kn
    v_block = lane_n[:, None] * stride_vn + lane_d[None, :]
    k_head = k_ptr + batch * stride_kb + head * stride_kh
    v_head = v_ptr + batch * stride_vb + head * stride_vh

    m = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)

    k_at = k_head + first_long * stride_kn
    v_at = v_head + first_long * stride_vn
    for start in tl.range(first, tl.minimum(first + BLOCK_M, length), BLOCK_N, num_stages=1):
        keys = start + lane_n
        k = tl.load(k_at + k_block, mask=(keys < length)[None, :], other=0.0)
        v = tl.load(v_at + v_block, mask=(keys < length)[:, None], other=0.0)
        scores = tl.dot(q, k, input_precision="ieee")
        visible = keys[None, :] <= (first + lane_m)[:, None]
        acc, m, d = take(acc, m, d, tl.where(visible, scores, -float("inf")), v, scale)
        k_at += BLOCK_N * stride_kn
        v_at += BLOCK_N * stride_vn

    k_at = k_head
    v_at = v_head
    for _ in range(0, first, BLOCK_N):
        k = tl.load(k_at + k_block)
        v = tl.load(v_at + v_block)
        acc, m, d = take(acc, m, d, tl.dot(q, k, input_precision="ieee"), v, scale)
        k_at += BLOCK_N * stride_kn
        v_at += BLOCK_N * stride_vn

    out_tile = out_ptr + batch * stride_ob + head * stride_oh + first_long * stride_om
    result = (acc / d[:, None]).to(out_ptr.dtype.element_ty)
    tl.store(out_tile + lane_m[:, None] * stride_om + lane_d[None, :], result, mask=exists)


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v for each head, where a query sees its own key and those before it.

    q, k and v are (batch, heads, length, dim), bf16, fp16 or fp32, dim 16, 32, 64 or 128 and contiguous, any
    length from 1 on; the result goes to `out`, like q, where one is given. After Dao, arXiv:2307.08691.
    """
    if out is None:
        out = q.new_empty(q.shape)
    batch, heads, length, dim = q.shape
    strides = [step for tensor in (q, k, v, out) for step in tensor.stride()[:3]]

    grid = lambda meta: (batch * heads, triton.cdiv(length, meta["BLOCK_M"]))  # noqa: E731
    attention_kernel[grid](q, k, v, out, heads, length, math.log2(math.e) / math.sqrt(dim), *strides, DIM=dim)
    return out
