# gpu-programming/triton-kernels/attention.py | wrong everywhere | `keys = tl.reshape(k, (DIM, BLOCK_N))` in `scores_of` should be `tl.trans(k)`: a reshape keeps the order of the elements and does not transpose, so scores mix parts of several keys. Wrong in all cases except for a length of 1, where the only weight is 1 anyway.
"""Causal attention without the matrix of scores: an online softmax over blocks of keys."""

import math

import torch
import triton
import triton.language as tl

# Queries of a program, keys of a step, stages, warps; the last one is for short sequences and fp32.
SHAPES = ((128, 64, 3, 8), (128, 64, 2, 8), (64, 64, 3, 4), (64, 64, 2, 4), (64, 32, 2, 4))
CONFIGS = [
    triton.Config({"BLOCK_M": m, "BLOCK_N": n}, num_stages=stages, num_warps=warps)
    for m, n, stages, warps in SHAPES
]


def fitting(configs, named_args, **kwargs):
    """Tiles no longer than the sequence; fp32 has no tensor cores and takes the smallest tile."""
    if named_args["q_ptr"].dtype == torch.float32:
        return configs[-1:]
    return [c for c in configs if c.kwargs["BLOCK_M"] <= named_args["length"]] or configs[-1:]


@triton.jit
def head_at(ptr, batch, head, stride_b, stride_h):
    """Where a head of one tensor begins."""
    return ptr + batch * stride_b + head * stride_h


@triton.jit
def scores_of(q, k, DIM: tl.constexpr, BLOCK_N: tl.constexpr):
    """The products of all queries with a block of keys, in fp32."""
    keys = tl.reshape(k, (DIM, BLOCK_N))  # a column for each key
    return tl.dot(q, keys, input_precision="ieee")


@triton.jit
def update(acc, m, d, scores, v, scale):
    """The online softmax: sums relative to the new maximum."""
    m_new = tl.maximum(m, tl.max(scores, axis=1) * scale)
    p = tl.exp2(scores * scale - m_new[:, None])
    factor = tl.exp2(m - m_new)
    acc = tl.dot(p.to(v.dtype), v, acc * factor[:, None], input_precision="ieee")
    return acc, m_new, d * factor + tl.sum(p, axis=1)


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, heads, length, scale,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_om,
    DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """A program owns BLOCK_M queries of one head; tiles with many keys come first."""
    tiles = tl.cdiv(length, BLOCK_M)
    pid = tl.program_id(axis=0)
    places = tl.num_programs(axis=0) // tiles  # batch times heads
    start_m = (tiles - 1 - pid // places) * BLOCK_M
    head = (pid % places % heads).to(tl.int64)
    batch = (pid % places // heads).to(tl.int64)

    feats = tl.arange(0, DIM)[None, :]
    rows = start_m + tl.arange(0, BLOCK_M)
    row_exists = rows[:, None] < length
    q_head = head_at(q_ptr, batch, head, stride_qb, stride_qh)
    q = tl.load(q_head + rows.to(tl.int64)[:, None] * stride_qm + feats, mask=row_exists, other=0.0)

    lanes = tl.arange(0, BLOCK_N)
    k_block = head_at(k_ptr, batch, head, stride_kb, stride_kh)
    v_block = head_at(v_ptr, batch, head, stride_vb, stride_vh)
    k_offsets = lanes[:, None] * stride_kn + feats
    v_offsets = lanes[:, None] * stride_vn + feats

    m = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)
    for _ in range(0, start_m, BLOCK_N):
        k = tl.load(k_block + k_offsets)
        v = tl.load(v_block + v_offsets)
        acc, m, d = update(acc, m, d, scores_of(q, k, DIM, BLOCK_N), v, scale)
        k_block += BLOCK_N * stride_kn
        v_block += BLOCK_N * stride_vn
    for start_n in tl.range(start_m, tl.minimum(start_m + BLOCK_M, length), BLOCK_N, num_stages=1):
        keys = start_n + lanes
        k = tl.load(k_block + k_offsets, mask=keys[:, None] < length, other=0.0)
        v = tl.load(v_block + v_offsets, mask=keys[:, None] < length, other=0.0)
        scores = scores_of(q, k, DIM, BLOCK_N)
        scores = tl.where(rows[:, None] >= keys[None, :], scores, -float("inf"))
        acc, m, d = update(acc, m, d, scores, v, scale)
        k_block += BLOCK_N * stride_kn
        v_block += BLOCK_N * stride_vn

    result = (acc / d[:, None]).to(out_ptr.dtype.element_ty)
    out_head = head_at(out_ptr, batch, head, stride_ob, stride_oh)
    tl.store(out_head + rows.to(tl.int64)[:, None] * stride_om + feats, result, mask=row_exists)


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v for each head, over a query's own key and those before it."""
    if out is None:
        out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    batch, heads, length, dim = q.shape
    strides = [stride for tensor in (q, k, v, out) for stride in tensor.stride()[:3]]
    attention_kernel[lambda meta: (batch * heads * triton.cdiv(length, meta["BLOCK_M"]),)](
        q, k, v, out, heads, length, math.log2(math.e) / math.sqrt(dim), *strides, DIM=dim
    )
    return out
