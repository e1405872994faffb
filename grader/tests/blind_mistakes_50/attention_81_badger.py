# gpu-programming/triton-kernels/attention.py | right | The diagonal comes first and the past afterwards, backwards from the tile to key 0; k is loaded transposed as (DIM, BLOCK_N) through a scalar pointer that moves and fixed offsets. Nothing is wrong.
"""Causal attention that begins at the diagonal: the keys of the tile first, then the past, backwards; autotuned."""

import math

import torch
import triton
import triton.language as tl

# (queries of a program, keys of a step, stages, warps); BLOCK_N divides BLOCK_M. The last one is for fp32 and
# for short sequences.
SHAPES = ((128, 128, 2, 8), (128, 64, 3, 8), (64, 64, 3, 4), (64, 32, 2, 4))
CONFIGS = [
    triton.Config({"BLOCK_M": block_m, "BLOCK_N": block_n}, num_stages=stages, num_warps=warps)
    for block_m, block_n, stages, warps in SHAPES
]


def fitting(configs, named_args, **kwargs):
    """The tiles that are no longer than the sequence, or the last one; for fp32 that one alone."""
    if named_args["q_ptr"].dtype == torch.float32:
        return configs[-1:]
    return [config for config in configs if config.kwargs["BLOCK_M"] <= named_args["length"]] or configs[-1:]


@triton.jit
def update(acc, m, d, scores, v, scale):
    """acc, m and d with one more block; scores are unscaled, and -inf where a key is hidden."""
    top = tl.maximum(m, tl.max(scores, axis=1) * scale)
    factor = tl.exp2(m - top)
    p = tl.exp2(scores * scale - top[:, None])
    d = d * factor + tl.sum(p, axis=1)
    acc = tl.dot(p.to(v.dtype), v, acc * factor[:, None], input_precision="ieee")
    return acc, top, d


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, heads, pairs, length, scale,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_om,
    DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """A program owns the queries from `first` on of one head; programs with the most keys come first.

    The first step has key `first`, which every query of the tile sees: so m is finite after it, and stays so.
    """
    pid = tl.program_id(axis=0)
    first = (tl.cdiv(length, BLOCK_M) - 1 - pid // pairs) * BLOCK_M
    pair = pid % pairs
    batch, head, begin = (pair // heads).to(tl.int64), (pair % heads).to(tl.int64), first.to(tl.int64)
    offs_m, offs_n, dims = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_N), tl.arange(0, DIM)
    rows = first + offs_m
    exists = (rows < length)[:, None]

    q_tile = q_ptr + batch * stride_qb + head * stride_qh + begin * stride_qm
    k_tile = k_ptr + batch * stride_kb + head * stride_kh + begin * stride_kn
    v_tile = v_ptr + batch * stride_vb + head * stride_vh + begin * stride_vn
    k_offs = dims[:, None] + offs_n[None, :] * stride_kn  # (DIM, BLOCK_N): loaded transposed
    v_offs = offs_n[:, None] * stride_vn + dims[None, :]
    q = tl.load(q_tile + offs_m[:, None] * stride_qm + dims[None, :], mask=exists, other=0.0)

    m = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)

    k_now, v_now = k_tile, v_tile
    for start in tl.range(first, tl.minimum(first + BLOCK_M, length), BLOCK_N, num_stages=1):
        keys = start + offs_n
        k = tl.load(k_now + k_offs, mask=(keys < length)[None, :], other=0.0)
        scores = tl.dot(q, k, input_precision="ieee")
        scores = tl.where(rows[:, None] >= keys[None, :], scores, -float("inf"))
        v = tl.load(v_now + v_offs, mask=(keys < length)[:, None], other=0.0)
        acc, m, d = update(acc, m, d, scores, v, scale)
        k_now += BLOCK_N * stride_kn
        v_now += BLOCK_N * stride_vn

    # Backwards from the tile to key 0: whole blocks, which each query sees.
    k_now, v_now = k_tile, v_tile
    for _ in tl.range(0, first, BLOCK_N):
        k_now -= BLOCK_N * stride_kn
        v_now -= BLOCK_N * stride_vn
        k = tl.load(k_now + k_offs)
        scores = tl.dot(q, k, input_precision="ieee")
        v = tl.load(v_now + v_offs)
        acc, m, d = update(acc, m, d, scores, v, scale)

    out_tile = out_ptr + batch * stride_ob + head * stride_oh + begin * stride_om
    y = acc / d[:, None]
    tl.store(
        out_tile + offs_m[:, None] * stride_om + dims[None, :], y.to(out_ptr.dtype.element_ty), mask=exists
    )


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v for each head, where a query sees its own key and those before it.

    q, k, v and `out` are (batch, heads, length, dim) of one dtype, dim contiguous, any strides before it.
    """
    batch, heads, length, dim = q.shape
    if out is None:
        out = torch.empty((batch, heads, length, dim), device=q.device, dtype=q.dtype)
    pairs = batch * heads
    strides = [stride for x in (q, k, v, out) for stride in x.stride()[:3]]
    attention_kernel[lambda meta: (pairs * triton.cdiv(length, meta["BLOCK_M"]),)](
        q, k, v, out, heads, pairs, length, math.log2(math.e) / math.sqrt(dim), *strides, DIM=dim
    )
    return out
