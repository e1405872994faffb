# gpu-programming/triton-kernels/attention.py | wrong everywhere | The scale from the host holds log2(e), but the kernel takes `tl.exp` of the scaled scores: it must be tl.exp2, or a scale of 1 / sqrt(dim). The weights are too sharp by a factor 1.4427 in the exponent; every query is wrong but the first of each head, which sees one key.
"""Causal attention: online softmax over blocks of keys, one tile of queries for each program."""

import math

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"BLOCK_M": 128, "BLOCK_N": 64}, num_stages=3, num_warps=8),
    triton.Config({"BLOCK_M": 128, "BLOCK_N": 128}, num_stages=2, num_warps=8),
    triton.Config({"BLOCK_M": 64, "BLOCK_N": 64}, num_stages=3, num_warps=4),
    triton.Config({"BLOCK_M": 32, "BLOCK_N": 32}, num_stages=2, num_warps=4),
]


def fitting(configs, named_args, **kwargs):
    """Tiles no longer than the sequence; the small one for fp32."""
    longest = 0 if named_args["q_ptr"].dtype == torch.float32 else named_args["length"]
    return [c for c in configs if c.kwargs["BLOCK_M"] <= longest] or configs[-1:]


@triton.jit
def weights(scores, m, scale):
    """The new maximum of the rows, their weights relative to it, and the factor for what was summed before."""
    top = tl.maximum(m, scale * tl.max(scores, axis=1))
    return top, tl.exp(scores * scale - top[:, None]), tl.exp(m - top)


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
    head = (tl.program_id(0) // tiles).to(tl.int64)
    b, h = head // heads, head % heads
    q_ptr += b * stride_qb + h * stride_qh
    k_ptr += b * stride_kb + h * stride_kh
    v_ptr += b * stride_vb + h * stride_vh
    out_ptr += b * stride_ob + h * stride_oh

    first = tile * BLOCK_M
    dims = tl.arange(0, DIM)
    queries = first + tl.arange(0, BLOCK_M)
    query_ok = (queries < length)[:, None]
    q = tl.load(q_ptr + queries.to(tl.int64)[:, None] * stride_qm + dims[None, :], mask=query_ok, other=0.0)

    m = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)

    # Keys before the tile: all of them exist, and all queries see them.
    for start in range(0, first, BLOCK_N):
        keys = start + tl.arange(0, BLOCK_N)
        k_t = tl.load(k_ptr + keys.to(tl.int64)[None, :] * stride_kn + dims[:, None])
        v = tl.load(v_ptr + keys.to(tl.int64)[:, None] * stride_vn + dims[None, :])
        scores = tl.dot(q, k_t, input_precision="ieee")
        m, p, factor = weights(scores, m, scale)
        d = d * factor + tl.sum(p, axis=1)
        acc = tl.dot(p.to(v.dtype), v, acc * factor[:, None], input_precision="ieee")

    # Keys at the diagonal.
    for start in tl.range(first, min(first + BLOCK_M, length), BLOCK_N, num_stages=1):
        keys = start + tl.arange(0, BLOCK_N)
        key_ok = keys < length
        k_t = tl.load(k_ptr + keys.to(tl.int64)[None, :] * stride_kn + dims[:, None], mask=key_ok[None, :], other=0.0)
        v = tl.load(v_ptr + keys.to(tl.int64)[:, None] * stride_vn + dims[None, :], mask=key_ok[:, None], other=0.0)
        scores = tl.dot(q, k_t, input_precision="ieee")
        scores = tl.where(queries[:, None] >= keys[None, :], scores, -float("inf"))
        m, p, factor = weights(scores, m, scale)
        d = d * factor + tl.sum(p, axis=1)
        acc = tl.dot(p.to(v.dtype), v, acc * factor[:, None], input_precision="ieee")

    result = (acc / d[:, None]).to(out_ptr.dtype.element_ty)
    tl.store(out_ptr + queries.to(tl.int64)[:, None] * stride_om + dims[None, :], result, mask=query_ok)


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    batch, heads, length, dim = q.shape
    scale = math.log2(math.e) / math.sqrt(dim)
    grid = lambda meta: (triton.cdiv(length, meta["BLOCK_M"]) * batch * heads,)  # noqa: E731
    attention_kernel[grid](
        q, k, v, out, heads, length, scale,
        *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *out.stride()[:3], DIM=dim,
    )  # fmt: skip
    return out
