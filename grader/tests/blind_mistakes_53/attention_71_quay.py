# gpu-programming/triton-kernels/attention.py | wrong everywhere | In `update`, `tl.reshape(k, (DIM, BLOCK_N))` does not transpose: it reads the (BLOCK_N, DIM) block on in memory order; it should be `tl.trans(k)` (or `tl.permute(k, (1, 0))`). The scores of all keys are wrong in every case but for length 1; only the first query of each sequence, which sees one key with the weight 1, is right.
"""Causal attention with an online softmax; tiles are read and written through block pointers."""

import math

import torch
import triton
import triton.language as tl

# (queries of a program, keys of a step, stages, warps); the last one is for short sequences and fp32
SHAPES = ((128, 64, 3, 8), (128, 64, 2, 8), (64, 64, 3, 4), (64, 32, 3, 4), (32, 32, 2, 4))
CONFIGS = [
    triton.Config({"BLOCK_M": m, "BLOCK_N": n}, num_stages=stages, num_warps=warps)
    for m, n, stages, warps in SHAPES
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: tiles no longer than the sequence, and the last one alone for fp32."""
    longest = 0 if named_args["q_ptr"].dtype == torch.float32 else named_args["length"]
    return [config for config in configs if config.kwargs["BLOCK_M"] <= longest] or configs[-1:]


@triton.jit
def tile_of(base, length, stride, first, BLOCK: tl.constexpr, DIM: tl.constexpr):
    """Block pointer to BLOCK positions of one head, from position `first` on."""
    return tl.make_block_ptr(
        base, shape=(length, DIM), strides=(stride, 1), offsets=(first, 0), block_shape=(BLOCK, DIM), order=(1, 0)
    )


@triton.jit
def update(acc, top, norm, q, k, v, hidden, scale, MASKED: tl.constexpr, BLOCK_N: tl.constexpr, DIM: tl.constexpr):
    """Sums of p * v and of p, p = exp2(scale * scores - top), with one more block of keys and values."""
    scores = tl.dot(q, tl.reshape(k, (DIM, BLOCK_N)), input_precision="ieee") * scale
    if MASKED:
        scores = tl.where(hidden, -float("inf"), scores)
    higher = tl.maximum(top, tl.max(scores, axis=1))
    p = tl.exp2(scores - higher[:, None])
    shrink = tl.exp2(top - higher)
    acc = tl.dot(p.to(v.dtype), v, acc * shrink[:, None], input_precision="ieee")
    return acc, higher, norm * shrink + tl.sum(p, axis=1)


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, pairs, heads, length, scale,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_om,
    DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """A program owns BLOCK_M queries of one of the `pairs` of batch and head; the last queries come first."""
    pid = tl.program_id(axis=0)
    first = (tl.cdiv(length, BLOCK_M) - 1 - pid // pairs) * BLOCK_M
    batch = (pid % pairs // heads).to(tl.int64)
    head = (pid % pairs % heads).to(tl.int64)

    q_tile = tile_of(q_ptr + batch * stride_qb + head * stride_qh, length, stride_qm, first, BLOCK_M, DIM)
    k_tile = tile_of(k_ptr + batch * stride_kb + head * stride_kh, length, stride_kn, 0, BLOCK_N, DIM)
    v_tile = tile_of(v_ptr + batch * stride_vb + head * stride_vh, length, stride_vn, 0, BLOCK_N, DIM)
    out_tile = tile_of(out_ptr + batch * stride_ob + head * stride_oh, length, stride_om, first, BLOCK_M, DIM)

    q = tl.load(q_tile, boundary_check=(0,), padding_option="zero")
    queries = first + tl.arange(0, BLOCK_M)
    lanes = tl.arange(0, BLOCK_N)
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)
    top = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    norm = tl.zeros((BLOCK_M,), dtype=tl.float32)

    for start in tl.range(0, first, BLOCK_N):
        k = tl.load(k_tile)
        v = tl.load(v_tile)
        acc, top, norm = update(acc, top, norm, q, k, v, None, scale, False, BLOCK_N, DIM)
        k_tile = tl.advance(k_tile, (BLOCK_N, 0))
        v_tile = tl.advance(v_tile, (BLOCK_N, 0))
    for start in tl.range(first, tl.minimum(first + BLOCK_M, length), BLOCK_N, num_stages=1):
        k = tl.load(k_tile, boundary_check=(0,), padding_option="zero")
        v = tl.load(v_tile, boundary_check=(0,), padding_option="zero")
        hidden = queries[:, None] < (start + lanes)[None, :]
        acc, top, norm = update(acc, top, norm, q, k, v, hidden, scale, True, BLOCK_N, DIM)
        k_tile = tl.advance(k_tile, (BLOCK_N, 0))
        v_tile = tl.advance(v_tile, (BLOCK_N, 0))

    tl.store(out_tile, (acc / norm[:, None]).to(out_ptr.dtype.element_ty), boundary_check=(0,))


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v for each head, where a query sees its own key and those before it.

    q, k, v and out are (batch, heads, length, dim), any strides but a contiguous dim.
    """
    batch, heads, length, dim = q.shape
    if out is None:
        out = torch.empty((batch, heads, length, dim), dtype=q.dtype, device=q.device)
    pairs = batch * heads
    if pairs > 0 and length > 0:
        attention_kernel[lambda meta: (triton.cdiv(length, meta["BLOCK_M"]) * pairs,)](
            q, k, v, out, pairs, heads, length, math.log2(math.e) / math.sqrt(dim),
            q.stride(0), q.stride(1), q.stride(2), k.stride(0), k.stride(1), k.stride(2),
            v.stride(0), v.stride(1), v.stride(2), out.stride(0), out.stride(1), out.stride(2),
            DIM=dim,
        )  # fmt: skip
    return out
