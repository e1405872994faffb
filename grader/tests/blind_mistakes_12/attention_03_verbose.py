# gpu-programming/triton-kernels/attention.py | error | p is fp32 and v fp16 or bf16 in tl.dot(p, v), which Triton refuses ("Both operands must be same dtype"); p must be converted to the dtype of v; shows in all 16-bit cases
"""Causal attention: each program computes BLOCK_M rows of the result of one head, block of keys by block of keys."""

import math

import torch
import triton
import triton.language as tl

# BLOCK_M is a multiple of BLOCK_N everywhere, as the loop without a mask ends where the tile begins.
CONFIGS = [
    triton.Config({"BLOCK_M": 128, "BLOCK_N": 64}, num_stages=3, num_warps=8),
    triton.Config({"BLOCK_M": 64, "BLOCK_N": 64}, num_stages=3, num_warps=4),
    triton.Config({"BLOCK_M": 64, "BLOCK_N": 32}, num_stages=3, num_warps=4),
    triton.Config({"BLOCK_M": 32, "BLOCK_N": 16}, num_stages=2, num_warps=2),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: tiles no longer than the sequence, and the last one alone for fp32."""
    longest = 0 if named_args["q_ptr"].dtype == torch.float32 else named_args["length"]
    return [config for config in configs if config.kwargs["BLOCK_M"] <= longest] or configs[-1:]


@triton.jit
def scores_of(q, k, scale):
    """Scores of a block in units of log2, fp32."""
    return scale * tl.dot(q, tl.trans(k), input_precision="ieee")


@triton.jit
def update(acc, m, d, scores, v):
    """The online softmax: acc and d are relative to m, and all three change together."""
    m_new = tl.maximum(m, tl.max(scores, axis=1))
    correction = tl.exp2(m - m_new)
    p = tl.exp2(scores - m_new[:, None])
    d = d * correction + tl.sum(p, axis=1)
    acc = acc * correction[:, None] + tl.dot(p, v, input_precision="ieee")
    return acc, m_new, d


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, heads, length, scale,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_om,
    DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    # 1. which rows of which head
    n_tiles = tl.cdiv(length, BLOCK_M)
    pid = tl.program_id(axis=0)
    tile = n_tiles - 1 - pid % n_tiles
    batch = (pid // n_tiles // heads).to(tl.int64)
    head = (pid // n_tiles % heads).to(tl.int64)
    begin = tile * BLOCK_M

    # 2. the queries
    offs_m = begin + tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    dims = tl.arange(0, DIM)[None, :]
    positions = offs_m[:, None].to(tl.int64)
    q_base = q_ptr + batch * stride_qb + head * stride_qh
    k_base = k_ptr + batch * stride_kb + head * stride_kh
    v_base = v_ptr + batch * stride_vb + head * stride_vh
    o_base = out_ptr + batch * stride_ob + head * stride_oh
    q = tl.load(q_base + positions * stride_qm + dims, mask=positions < length, other=0.0)

    m = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)

    # 3. keys that all queries of the tile see
    for n in range(0, begin, BLOCK_N):
        keys = (n + offs_n)[:, None].to(tl.int64)
        k = tl.load(k_base + keys * stride_kn + dims)
        v = tl.load(v_base + keys * stride_vn + dims)
        acc, m, d = update(acc, m, d, scores_of(q, k, scale), v)

    # 4. keys at the diagonal
    end = tl.minimum(begin + BLOCK_M, length)
    for n in tl.range(begin, end, BLOCK_N, num_stages=1):
        keys = (n + offs_n)[:, None].to(tl.int64)
        k = tl.load(k_base + keys * stride_kn + dims, mask=keys < length, other=0.0)
        v = tl.load(v_base + keys * stride_vn + dims, mask=keys < length, other=0.0)
        visible = offs_m[:, None] >= (n + offs_n)[None, :]
        acc, m, d = update(acc, m, d, tl.where(visible, scores_of(q, k, scale), -float("inf")), v)

    # 5. the rows of the result
    result = acc / d[:, None]
    tl.store(o_base + positions * stride_om + dims, result.to(out_ptr.dtype.element_ty), mask=positions < length)


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Causal attention, q, k, v and out of shape (batch, heads, length, dim)."""
    batch, heads, length, dim = q.shape
    if out is None:
        out = torch.empty(q.shape, dtype=q.dtype, device=q.device)

    def grid(meta):
        return (batch * heads * triton.cdiv(length, meta["BLOCK_M"]),)

    attention_kernel[grid](
        q, k, v, out, heads, length, math.log2(math.e) / math.sqrt(dim),
        q.stride(0), q.stride(1), q.stride(2),
        k.stride(0), k.stride(1), k.stride(2),
        v.stride(0), v.stride(1), v.stride(2),
        out.stride(0), out.stride(1), out.stride(2),
        DIM=dim,
    )  # fmt: skip
    return out
