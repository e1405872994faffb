# gpu-programming/triton-kernels/attention.py | corner | attention_kernel: q is multiplied by log2(e) / sqrt(dim) once and rounded back to its dtype before the product, `(q.to(tl.float32) * scale).to(q_ptr.dtype.element_ty)`; this rounding changes large scores by more than the tolerance, so fp16 and bf16 are wrong where scores are large (q some tens of times larger), and fp32 and small scores are right; the fp32 scores should be multiplied by scale after tl.dot
"""Causal attention, one pass over the keys for each tile of queries."""

import math

import torch
import triton
import triton.language as tl

LOG2_E = 1.4426950408889634
SHAPES = ((128, 64, 3, 8), (128, 128, 2, 8), (64, 64, 3, 4), (64, 32, 3, 4), (16, 16, 1, 4))


def _config(block_m, block_n, num_stages, num_warps):
    return triton.Config({"BLOCK_M": block_m, "BLOCK_N": block_n}, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [_config(*shape) for shape in SHAPES]


def fitting(configs, named_args, **kwargs):
    if named_args["q_ptr"].dtype == torch.float32:
        return configs[-1:]
    return [c for c in configs if c.kwargs["BLOCK_M"] <= named_args["length"]] or configs[-1:]


@triton.jit
def fold(state, q, k_ptrs, v_ptrs, offs_m, keys, length, DIAGONAL: tl.constexpr):
    """k_ptrs is (DIM, BLOCK_N): the keys are read as columns."""
    acc, m, d = state
    if DIAGONAL:
        k = tl.load(k_ptrs, mask=keys[None, :] < length, other=0.0)
        s = tl.dot(q, k, input_precision="ieee")
        s = tl.where(keys[None, :] <= offs_m[:, None], s, float("-inf"))
        v = tl.load(v_ptrs, mask=keys[:, None] < length, other=0.0)
    else:
        s = tl.dot(q, tl.load(k_ptrs), input_precision="ieee")
        v = tl.load(v_ptrs)
    top = tl.maximum(m, tl.max(s, 1))
    shrink = tl.exp2(m - top)
    p = tl.exp2(s - top[:, None])
    acc = tl.dot(p.to(v.dtype), v, acc * shrink[:, None], input_precision="ieee")
    return acc, top, d * shrink + tl.sum(p, 1)


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, heads, length, scale,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_om,
    DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(0)
    tiles = tl.cdiv(length, BLOCK_M)
    tile = tiles - 1 - pid % tiles
    pair = (pid // tiles).to(tl.int64)
    batch = pair // heads
    head = pair - batch * heads
    q_ptr += batch * stride_qb + head * stride_qh
    k_ptr += batch * stride_kb + head * stride_kh
    v_ptr += batch * stride_vb + head * stride_vh
    out_ptr += batch * stride_ob + head * stride_oh

    low = tile * BLOCK_M
    high = tl.minimum(low + BLOCK_M, length)
    offs_m = low + tl.arange(0, BLOCK_M)
    rows = offs_m.to(tl.int64)
    n = tl.arange(0, BLOCK_N)
    dims = tl.arange(0, DIM)

    q = tl.load(q_ptr + rows[:, None] * stride_qm + dims[None, :], mask=offs_m[:, None] < length, other=0.0)
    # Once for the tile: the scores come out of the product ready for exp2.
    q = (q.to(tl.float32) * scale).to(q_ptr.dtype.element_ty)

    k_block = n[None, :] * stride_kn + dims[:, None]
    v_block = n[:, None] * stride_vn + dims[None, :]
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)
    m = tl.full((BLOCK_M,), float("-inf"), dtype=tl.float32)
    d = tl.zeros((BLOCK_M,), dtype=tl.float32)
    for start in range(0, low, BLOCK_N):
        acc, m, d = fold((acc, m, d), q, k_ptr + k_block, v_ptr + v_block, offs_m, start + n, length, False)
        k_ptr += BLOCK_N * stride_kn
        v_ptr += BLOCK_N * stride_vn
    for start in tl.range(low, high, BLOCK_N, num_stages=1):
        acc, m, d = fold((acc, m, d), q, k_ptr + k_block, v_ptr + v_block, offs_m, start + n, length, True)
        k_ptr += BLOCK_N * stride_kn
        v_ptr += BLOCK_N * stride_vn

    result = (acc / d[:, None]).to(out_ptr.dtype.element_ty)
    tl.store(out_ptr + rows[:, None] * stride_om + dims[None, :], result, mask=offs_m[:, None] < length)


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Causal attention of (batch, heads, length, dim); the result goes to `out` where one is given."""
    batch, heads, length, dim = q.shape
    out = q.new_empty(q.shape) if out is None else out

    def grid(meta):
        return (triton.cdiv(length, meta["BLOCK_M"]) * batch * heads,)

    attention_kernel[grid](
        q, k, v, out, heads, length, LOG2_E / math.sqrt(dim),
        *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *out.stride()[:3],
        DIM=dim,
    )  # fmt: skip
    return out
