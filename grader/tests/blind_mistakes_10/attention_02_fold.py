# gpu-programming/triton-kernels/attention.py | corner | the kernel has no strides for out and stores with those of q (`here = batch * stride_qb + head * stride_qh`, `rows * stride_qm`); must take out's own three strides. Shows where out is laid out otherwise than q (padded, or heads side by side), also where q is not contiguous and out is new.
"""Causal attention: full blocks of keys first, then those at the diagonal; autotuned."""

import math

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, num_stages, num_warps):
    return triton.Config({"BLOCK_M": block_m, "BLOCK_N": block_n}, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [_config(128, 128, 2, 8), _config(128, 64, 3, 8), _config(64, 64, 3, 4), _config(32, 16, 2, 4)]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: tiles no longer than the sequence, and the last one alone for fp32."""
    longest = 0 if named_args["q_ptr"].dtype == torch.float32 else named_args["length"]
    return [config for config in configs if config.kwargs["BLOCK_M"] <= longest] or configs[-1:]


@triton.jit
def fold(
    acc, m, d, q, k_ptr, v_ptr, rows, start, length, scale, stride_kn, stride_vn,
    DIM: tl.constexpr, BLOCK_N: tl.constexpr, DIAGONAL: tl.constexpr,
):  # fmt: skip
    """The sums acc of p * v and d of p with one more block of keys, and their maximum m."""
    keys = start + tl.arange(0, BLOCK_N).to(tl.int64)
    dims = tl.arange(0, DIM)
    k_ptrs = k_ptr + keys[None, :] * stride_kn + dims[:, None]
    v_ptrs = v_ptr + keys[:, None] * stride_vn + dims[None, :]
    if DIAGONAL:
        k = tl.load(k_ptrs, mask=keys[None, :] < length, other=0.0)
        v = tl.load(v_ptrs, mask=keys[:, None] < length, other=0.0)
    else:
        k = tl.load(k_ptrs)
        v = tl.load(v_ptrs)
    scores = tl.dot(q, k, input_precision="ieee")
    if DIAGONAL:
        scores = tl.where(rows[:, None] >= keys[None, :], scores, -float("inf"))
    m_new = tl.maximum(m, scale * tl.max(scores, axis=1))
    p = tl.exp2(scale * scores - m_new[:, None])
    factor = tl.exp2(m - m_new)
    acc = tl.dot(p.to(v.dtype), v, acc * factor[:, None], input_precision="ieee")
    d = d * factor + tl.sum(p, axis=1)
    return acc, m_new, d


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, heads, length, scale,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn, stride_vb, stride_vh, stride_vn,
    DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    tiles = tl.cdiv(length, BLOCK_M)
    tile = tiles - 1 - tl.program_id(0) % tiles
    head = (tl.program_id(0) // tiles % heads).to(tl.int64)
    batch = (tl.program_id(0) // tiles // heads).to(tl.int64)
    first = tile * BLOCK_M
    rows = first + tl.arange(0, BLOCK_M).to(tl.int64)
    k_ptr += batch * stride_kb + head * stride_kh
    v_ptr += batch * stride_vb + head * stride_vh
    here = batch * stride_qb + head * stride_qh
    places = rows[:, None] * stride_qm + tl.arange(0, DIM)[None, :]
    q = tl.load(q_ptr + here + places, mask=rows[:, None] < length, other=0.0)
    m = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)
    for start in tl.range(0, first, BLOCK_N):
        acc, m, d = fold(
            acc, m, d, q, k_ptr, v_ptr, rows, start, length, scale, stride_kn, stride_vn, DIM, BLOCK_N, False
        )
    for start in tl.range(first, tl.minimum(first + BLOCK_M, length), BLOCK_N, num_stages=1):
        acc, m, d = fold(
            acc, m, d, q, k_ptr, v_ptr, rows, start, length, scale, stride_kn, stride_vn, DIM, BLOCK_N, True
        )
    acc = acc / d[:, None]
    tl.store(out_ptr + here + places, acc.to(out_ptr.dtype.element_ty), mask=rows[:, None] < length)


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Causal attention for each head."""
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device) if out is None else out
    batch, heads, length, dim = q.shape
    strides = [t.stride(axis) for t in (q, k, v) for axis in range(3)]
    scale = math.log2(math.e) / dim**0.5
    grid = lambda meta: (triton.cdiv(length, meta["BLOCK_M"]) * batch * heads,)
    attention_kernel[grid](q, k, v, out, heads, length, scale, *strides, DIM=dim)
    return out
