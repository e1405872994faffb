# gpu-programming/triton-kernels/attention.py | right | Square tiles: the block at the diagonal is taken first, outside of any loop, and starts maximum, denominator and acc (no -inf start, no first rescaling); then one pipelined loop without masks over all earlier keys.
"""Causal attention, square tiles: first the keys at the diagonal, then all blocks before them; autotuned."""

import math

import torch
import triton
import triton.language as tl

# Queries of a program, and keys of a step, with stages and warps; the last one is for short sequences and fp32.
CONFIGS = [
    triton.Config({"BLOCK": block}, num_stages=stages, num_warps=warps)
    for block, stages, warps in ((128, 2, 8), (64, 3, 4), (64, 2, 4), (32, 3, 4), (32, 2, 4))
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: tiles no longer than the sequence, and the last one alone for fp32."""
    longest = 0 if named_args["q_ptr"].dtype == torch.float32 else named_args["length"]
    return [config for config in configs if config.kwargs["BLOCK"] <= longest] or configs[-1:]


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, heads, length, scale,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_om,
    DIM: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """out[i, :] = sum over j <= i of softmax(q k^T)[i, j] v[j, :]; a program owns BLOCK rows of one head.

    scale is log2(e) / sqrt(DIM). Each query sees its own key in the first block of keys that it meets, so the
    maximum begins with a number and not with -inf.
    """
    tiles = tl.cdiv(length, BLOCK)
    number = tl.program_id(axis=0)
    first = (tiles - 1 - number % tiles) * BLOCK
    which = (number // tiles).to(tl.int64)
    batch, head = which // heads, which % heads

    lanes = tl.arange(0, BLOCK)
    dims = tl.arange(0, DIM)[None, :]
    exists = (first + lanes < length)[:, None]
    start = tl.cast(first, tl.int64)
    k_head = k_ptr + batch * stride_kb + head * stride_kh
    v_head = v_ptr + batch * stride_vb + head * stride_vh
    k_offsets = lanes[:, None] * stride_kn + dims
    v_offsets = lanes[:, None] * stride_vn + dims

    # The square at the diagonal: rows and keys have the same numbers.
    q_tile = q_ptr + batch * stride_qb + head * stride_qh + start * stride_qm
    q = tl.load(q_tile + lanes[:, None] * stride_qm + dims, mask=exists, other=0.0)
    k = tl.load(k_head + start * stride_kn + k_offsets, mask=exists, other=0.0)
    v = tl.load(v_head + start * stride_vn + v_offsets, mask=exists, other=0.0)
    scores = tl.dot(q, tl.trans(k), input_precision="ieee")
    scores = tl.where(lanes[:, None] >= lanes[None, :], scores, -float("inf"))
    top = scale * tl.max(scores, axis=1)
    p = tl.exp2(scale * scores - top[:, None])
    denominator = tl.sum(p, axis=1)
    acc = tl.dot(p.to(v.dtype), v, input_precision="ieee")

    # All keys before it, which every query of the tile sees.
    for key in tl.range(0, first, BLOCK):
        at = tl.cast(key, tl.int64)
        k = tl.load(k_head + at * stride_kn + k_offsets)
        scores = tl.dot(q, tl.trans(k), input_precision="ieee")
        new_top = tl.maximum(top, scale * tl.max(scores, axis=1))
        p = tl.exp2(scale * scores - new_top[:, None])
        factor = tl.exp2(top - new_top)
        v = tl.load(v_head + at * stride_vn + v_offsets)
        acc = tl.dot(p.to(v.dtype), v, acc * factor[:, None], input_precision="ieee")
        denominator = denominator * factor + tl.sum(p, axis=1)
        top = new_top

    out_tile = out_ptr + batch * stride_ob + head * stride_oh + start * stride_om
    result = (acc / denominator[:, None]).to(out_ptr.dtype.element_ty)
    tl.store(out_tile + lanes[:, None] * stride_om + dims, result, mask=exists)


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v for each head, where a query sees its own key and those before it.

    q, k and v are (batch, heads, length, dim), bf16, fp16 or fp32, dim 16, 32, 64 or 128 and contiguous, any
    length from 1 on; the result goes to `out`, like q, where one is given. After Dao, arXiv:2307.08691.
    """
    if out is None:
        out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    batch, heads, length, dim = q.shape
    strides = [tensor.stride(axis) for tensor in (q, k, v, out) for axis in range(3)]

    def grid(meta):
        return (batch * heads * triton.cdiv(length, meta["BLOCK"]),)

    attention_kernel[grid](
        q, k, v, out, heads, length, math.log2(math.e) / math.sqrt(dim), *strides, DIM=dim
    )  # fmt: skip
    return out
