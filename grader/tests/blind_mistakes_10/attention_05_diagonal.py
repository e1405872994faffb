# gpu-programming/triton-kernels/attention.py | right | the keys run from the diagonal down to key 0, so a query may see none in its first block, and the shift is 0 there; exp to the base e.
"""Causal attention: one loop that begins at the diagonal and ends at key 0."""

import math

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"BLOCK_M": 128, "BLOCK_N": 64}, num_stages=2, num_warps=8),
    triton.Config({"BLOCK_M": 64, "BLOCK_N": 64}, num_stages=3, num_warps=4),
    triton.Config({"BLOCK_M": 64, "BLOCK_N": 32}, num_stages=2, num_warps=4),
    triton.Config({"BLOCK_M": 16, "BLOCK_N": 16}, num_stages=2, num_warps=4),
]


def fitting(configs, named_args, **kwargs):
    """Tiles no longer than the sequence, and the last one alone for fp32."""
    longest = 0 if named_args["q_ptr"].dtype == torch.float32 else named_args["length"]
    return [config for config in configs if config.kwargs["BLOCK_M"] <= longest] or configs[-1:]


@triton.jit
def rows_of(ptr, positions, stride, length, DIM: tl.constexpr):
    """Rows of one head at some positions, 0 past the end."""
    where = ptr + positions[:, None] * stride + tl.arange(0, DIM)[None, :]
    return tl.load(where, mask=positions[:, None] < length, other=0.0)


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, heads, length, scale,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_om,
    DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    tiles = tl.cdiv(length, BLOCK_M)
    tile = tiles - 1 - tl.program_id(0) % tiles
    which = tl.program_id(0) // tiles
    batch, head = (which // heads).to(tl.int64), (which % heads).to(tl.int64)
    k_ptr += batch * stride_kb + head * stride_kh
    v_ptr += batch * stride_vb + head * stride_vh
    offs_m = tile * BLOCK_M + tl.arange(0, BLOCK_M).to(tl.int64)
    q = rows_of(q_ptr + batch * stride_qb + head * stride_qh, offs_m, stride_qm, length, DIM)
    m = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)
    blocks = tl.cdiv(tl.minimum((tile + 1) * BLOCK_M, length), BLOCK_N)
    for turn in range(0, blocks):
        keys = (blocks - 1 - turn) * BLOCK_N + tl.arange(0, BLOCK_N).to(tl.int64)
        k = rows_of(k_ptr, keys, stride_kn, length, DIM)
        v = rows_of(v_ptr, keys, stride_vn, length, DIM)
        seen = (offs_m[:, None] >= keys[None, :]) & (keys[None, :] < length)
        scores = tl.where(seen, tl.dot(q, tl.trans(k), input_precision="ieee") * scale, -float("inf"))
        m_new = tl.maximum(m, tl.max(scores, axis=1))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        p = tl.exp(scores - shift[:, None])
        factor = tl.exp(m - shift)
        acc = tl.dot(p.to(v.dtype), v, acc * factor[:, None], input_precision="ieee")
        d = d * factor + tl.sum(p, axis=1)
        m = m_new
    acc = acc / d[:, None]
    out_ptr += batch * stride_ob + head * stride_oh
    where = out_ptr + offs_m[:, None] * stride_om + tl.arange(0, DIM)[None, :]
    tl.store(where, acc.to(out_ptr.dtype.element_ty), mask=offs_m[:, None] < length)


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v for each head, where a query sees its own key and those before it."""
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device) if out is None else out
    batch, heads, length, dim = q.shape
    grid = lambda meta: (batch * heads * triton.cdiv(length, meta["BLOCK_M"]),)
    attention_kernel[grid](
        q, k, v, out, heads, length, 1.0 / math.sqrt(dim),
        q.stride(0), q.stride(1), q.stride(2),
        k.stride(0), k.stride(1), k.stride(2),
        v.stride(0), v.stride(1), v.stride(2),
        out.stride(0), out.stride(1), out.stride(2),
        DIM=dim,
    )  # fmt: skip
    return out
