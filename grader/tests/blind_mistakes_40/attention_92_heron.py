# gpu-programming/triton-kernels/attention.py | right | Nothing is wrong. Unusual: the blocks of the diagonal come first, then the earlier keys are walked backwards with pointers that move by negative steps; the maximum is kept of the unscaled scores, and the scale is applied to differences, `tl.exp2(scale * (scores - new[:, None]))`. The first block begins at the first query of the tile, so every maximum is finite after it.
"""Causal attention from the diagonal backwards: first the keys of the tile itself, then those before it."""

import math

import torch
import triton
import triton.language as tl

LOG2E = 1.4426950408889634

CONFIGS = [
    triton.Config({"BLOCK_M": block_m, "BLOCK_N": block_n}, num_stages=stages, num_warps=warps)
    for block_m, block_n, stages, warps in (
        (128, 64, 3, 8),
        (128, 32, 4, 8),
        (64, 64, 3, 4),
        (64, 32, 3, 4),
        (32, 32, 2, 4),  # for short sequences, and for fp32
    )
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: tiles no longer than the sequence, and the last one alone for fp32."""
    longest = 0 if named_args["q_ptr"].dtype == torch.float32 else named_args["length"]
    return [config for config in configs if config.kwargs["BLOCK_M"] <= longest] or configs[-1:]


@triton.jit
def absorb(top, d, acc, scores, v, scale):
    """The largest score, the sum of the weights and that of the values times them, with one more block.

    top and scores are plain products q k^T; a weight is exp2(scale * (score - top)).
    """
    new = tl.maximum(top, tl.max(scores, axis=1))
    fade = tl.exp2(scale * (top - new))
    p = tl.exp2(scale * (scores - new[:, None]))
    d = d * fade + tl.sum(p, axis=1)
    acc = tl.dot(p.to(v.dtype), v, acc * fade[:, None], input_precision="ieee")
    return new, d, acc


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, heads, length, scale,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_om,
    DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """A program owns BLOCK_M queries of one head; the last tile of every head starts first."""
    tiles = tl.cdiv(length, BLOCK_M)
    all_heads = tl.num_programs(axis=0) // tiles
    pid = tl.program_id(axis=0)
    first = (tiles - 1 - pid // all_heads) * BLOCK_M
    b = (pid % all_heads // heads).to(tl.int64)
    h = (pid % all_heads % heads).to(tl.int64)
    begin = first.to(tl.int64)

    in_tile = tl.arange(0, BLOCK_M)
    in_block = tl.arange(0, BLOCK_N)
    dims = tl.arange(0, DIM)
    exists = (first + in_tile)[:, None] < length
    q_at = q_ptr + b * stride_qb + h * stride_qh + begin * stride_qm
    q = tl.load(q_at + in_tile[:, None] * stride_qm + dims[None, :], mask=exists, other=0.0)
    k_head = k_ptr + b * stride_kb + h * stride_kh
    v_head = v_ptr + b * stride_vb + h * stride_vh
    k_offs = dims[:, None] + in_block[None, :] * stride_kn
    v_offs = in_block[:, None] * stride_vn + dims[None, :]

    top = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)

    # The first block here begins at the first query, so every query sees a key in it and top is finite.
    k_at = k_head + begin * stride_kn
    v_at = v_head + begin * stride_vn
    for start in tl.range(first, tl.minimum(first + BLOCK_M, length), BLOCK_N, num_stages=1):
        keys = start + in_block
        k = tl.load(k_at + k_offs, mask=keys[None, :] < length, other=0.0)
        v = tl.load(v_at + v_offs, mask=keys[:, None] < length, other=0.0)
        scores = tl.dot(q, k, input_precision="ieee")
        scores = tl.where((first + in_tile)[:, None] >= keys[None, :], scores, -float("inf"))
        top, d, acc = absorb(top, d, acc, scores, v, scale)
        k_at += BLOCK_N * stride_kn
        v_at += BLOCK_N * stride_vn

    # All keys before the tile, the nearest block first: none is hidden.
    k_at = k_head + (begin - BLOCK_N) * stride_kn
    v_at = v_head + (begin - BLOCK_N) * stride_vn
    for _ in range(0, first, BLOCK_N):
        k = tl.load(k_at + k_offs)
        v = tl.load(v_at + v_offs)
        scores = tl.dot(q, k, input_precision="ieee")
        top, d, acc = absorb(top, d, acc, scores, v, scale)
        k_at += -BLOCK_N * stride_kn
        v_at += -BLOCK_N * stride_vn

    out_at = out_ptr + b * stride_ob + h * stride_oh + begin * stride_om
    result = (acc / d[:, None]).to(out_ptr.dtype.element_ty)
    tl.store(out_at + in_tile[:, None] * stride_om + dims[None, :], result, mask=exists)


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v for each head, where a query sees its own key and those before it.

    q, k and v are (batch, heads, length, dim), bf16, fp16 or fp32, dim contiguous; the result goes to `out`
    where one is given.
    """
    batch, heads, length, dim = q.shape
    if out is None:
        out = torch.empty((batch, heads, length, dim), device=q.device, dtype=q.dtype)
    grid = lambda meta: (triton.cdiv(length, meta["BLOCK_M"]) * batch * heads,)  # noqa: E731
    attention_kernel[grid](
        q, k, v, out, heads, length, LOG2E / math.sqrt(dim),
        *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *out.stride()[:3], DIM=dim,
    )  # fmt: skip
    return out
