# gpu-programming/triton-kernels/attention.py | right | right
"""Causal attention without the matrix of scores: the diagonal first, then the keys from late to early."""

import math

import torch
import triton
import triton.language as tl

# (BLOCK_M, BLOCK_N, stages, warps); BLOCK_N divides BLOCK_M, and the last one is for fp32 and short sequences.
SHAPES = [(128, 128, 2, 8), (128, 64, 3, 8), (64, 64, 3, 4), (64, 32, 3, 4), (32, 32, 2, 4)]
CONFIGS = [triton.Config({"BLOCK_M": m, "BLOCK_N": n}, num_stages=s, num_warps=w) for m, n, s, w in SHAPES]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: tiles no longer than the sequence, and the last one alone for fp32."""
    if named_args["q_ptr"].dtype == torch.float32:
        return configs[-1:]
    kept = [config for config in configs if config.kwargs["BLOCK_M"] <= named_args["length"]]
    return kept or configs[-1:]


@triton.jit
def head_of(ptr, pair, heads, stride_b, stride_h):
    """Where head `pair % heads` of batch `pair // heads` begins."""
    return ptr + (pair // heads) * stride_b + (pair % heads) * stride_h


@triton.jit
def weigh(p, v, acc):
    """acc + p @ v, with p rounded to the dtype of v."""
    return tl.dot(p.to(v.dtype), v, acc, input_precision="ieee")


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, heads, length, scale,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_om,
    DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Program (pair, i) owns BLOCK_M queries of one head of one batch; the last queries come first.

    Each query sees its own key, so the square block of the tile at the diagonal gives every row a finite
    maximum. It starts m, d and acc; the keys before it are added by the recurrence, and need no mask.
    """
    pair = tl.program_id(axis=0).to(tl.int64)
    first = (tl.num_programs(axis=1) - 1 - tl.program_id(axis=1)) * BLOCK_M

    local = tl.arange(0, BLOCK_M)
    dims = tl.arange(0, DIM)
    positions = first + local
    far = positions.to(tl.int64)
    inside = positions < length

    q_head = head_of(q_ptr, pair, heads, stride_qb, stride_qh)
    k_head = head_of(k_ptr, pair, heads, stride_kb, stride_kh)
    v_head = head_of(v_ptr, pair, heads, stride_vb, stride_vh)
    out_head = head_of(out_ptr, pair, heads, stride_ob, stride_oh)

    # The diagonal: queries and keys have the same positions, so their local numbers decide.
    q = tl.load(q_head + far[:, None] * stride_qm + dims[None, :], mask=inside[:, None], other=0.0)
    k = tl.load(k_head + far[:, None] * stride_kn + dims[None, :], mask=inside[:, None], other=0.0)
    v = tl.load(v_head + far[:, None] * stride_vn + dims[None, :], mask=inside[:, None], other=0.0)
    scores = tl.dot(q, tl.trans(k), input_precision="ieee")
    scores = tl.where(local[:, None] >= local[None, :], scores * scale, -float("inf"))
    m = tl.max(scores, axis=1)
    p = tl.exp2(scores - m[:, None])
    d = tl.sum(p, axis=1)
    acc = weigh(p, v, tl.zeros((BLOCK_M, DIM), dtype=tl.float32))

    # Back from the tile to key 0. `first` is a multiple of BLOCK_N.
    k_step = tl.cast(stride_kn, tl.int64) * BLOCK_N
    v_step = tl.cast(stride_vn, tl.int64) * BLOCK_N
    steps = first // BLOCK_N
    lanes = tl.arange(0, BLOCK_N).to(tl.int64)
    k_block = k_head + steps * k_step
    v_block = v_head + steps * v_step
    for i in range(0, steps):
        k_block -= k_step
        v_block -= v_step
        early_k = tl.load(k_block + lanes[None, :] * stride_kn + dims[:, None])
        early_v = tl.load(v_block + lanes[:, None] * stride_vn + dims[None, :])
        early = tl.dot(q, early_k, input_precision="ieee") * scale
        higher = tl.maximum(m, tl.max(early, axis=1))
        weights = tl.exp2(early - higher[:, None])
        factor = tl.exp2(m - higher)
        d = d * factor + tl.sum(weights, axis=1)
        acc = weigh(weights, early_v, acc * factor[:, None])
        m = higher

    y = (acc / d[:, None]).to(out_ptr.dtype.element_ty)
    tl.store(out_head + far[:, None] * stride_om + dims[None, :], y, mask=inside[:, None])


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v for each head, where a query sees its own key and those before it.

    q, k and v are (batch, heads, length, dim), bf16, fp16 or fp32, dim 16, 32, 64 or 128 and contiguous, any
    length from 1 on; the result goes to `out`, like q, where one is given. After Dao, arXiv:2307.08691.
    """
    batch, heads, length, dim = q.shape
    if out is None:
        out = torch.empty((batch, heads, length, dim), dtype=q.dtype, device=q.device)
    strides = [t.stride(axis) for t in (q, k, v, out) for axis in (0, 1, 2)]
    scale = 1.0 / (math.log(2.0) * math.sqrt(dim))

    def grid(meta):
        return batch * heads, triton.cdiv(length, meta["BLOCK_M"])

    attention_kernel[grid](q, k, v, out, heads, length, scale, *strides, DIM=dim)
    return out
