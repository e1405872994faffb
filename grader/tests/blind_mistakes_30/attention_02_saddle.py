# gpu-programming/triton-kernels/attention.py | right | right
"""Causal attention on square tiles: first the tile on the diagonal, then all tiles to the left of it."""

import math

import torch
import triton
import triton.language as tl


def _config(block, num_stages, num_warps):
    """One candidate: as many queries of a program as keys of a step."""
    return triton.Config({"BLOCK": block}, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [_config(128, 2, 8), _config(64, 3, 4), _config(32, 2, 4)]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: tiles no longer than the sequence, and the last one alone for fp32."""
    if named_args["q_ptr"].dtype == torch.float32:
        return configs[-1:]
    return [config for config in configs if config.kwargs["BLOCK"] <= named_args["length"]] or configs[-1:]


@triton.jit
def fold(acc, m, d, q, k, v, scale):
    """acc, m and d with one more block of keys, all of which every query sees."""
    scores = tl.dot(q, tl.trans(k), input_precision="ieee")
    m_new = tl.maximum(m, scale * tl.max(scores, axis=1))
    p = tl.exp2(scale * scores - m_new[:, None])
    kept = tl.exp2(m - m_new)
    d = d * kept + tl.sum(p, axis=1)
    acc = tl.dot(p.to(v.dtype), v, acc * kept[:, None], input_precision="ieee")
    return acc, m_new, d


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, heads, length, scale,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_om,
    DIM: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The last tiles of all heads come first, then the last but one of all, and so on."""
    tiles = tl.cdiv(length, BLOCK)
    sequences = tl.num_programs(0) // tiles
    tile = tiles - 1 - tl.program_id(0) // sequences
    sequence = tl.program_id(0) % sequences
    b = (sequence // heads).to(tl.int64)
    h = (sequence % heads).to(tl.int64)
    q_ptr += b * stride_qb + h * stride_qh
    k_ptr += b * stride_kb + h * stride_kh
    v_ptr += b * stride_vb + h * stride_vh
    out_ptr += b * stride_ob + h * stride_oh

    local = tl.arange(0, BLOCK)
    dims = tl.arange(0, DIM)[None, :]
    position = (tile * BLOCK + local).to(tl.int64)[:, None]
    exists = position < length

    # The tile on the diagonal gives m, d and acc their first values: every query sees its own key there.
    # Queries and keys begin at the same position, so positions within the tile decide who sees whom.
    q = tl.load(q_ptr + position * stride_qm + dims, mask=exists, other=0.0)
    k = tl.load(k_ptr + position * stride_kn + dims, mask=exists, other=0.0)
    v = tl.load(v_ptr + position * stride_vn + dims, mask=exists, other=0.0)
    scores = tl.dot(q, tl.trans(k), input_precision="ieee")
    scores = tl.where(local[:, None] >= local[None, :], scores, -float("inf"))
    m = scale * tl.max(scores, axis=1)
    p = tl.exp2(scale * scores - m[:, None])
    d = tl.sum(p, axis=1)
    acc = tl.dot(p.to(v.dtype), v, input_precision="ieee")

    k_ptrs = k_ptr + local[:, None] * stride_kn + dims
    v_ptrs = v_ptr + local[:, None] * stride_vn + dims
    for _ in range(tile):
        acc, m, d = fold(acc, m, d, q, tl.load(k_ptrs), tl.load(v_ptrs), scale)
        k_ptrs += BLOCK * stride_kn
        v_ptrs += BLOCK * stride_vn

    tl.store(out_ptr + position * stride_om + dims, acc / d[:, None], mask=exists)


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v for each head, where a query sees its own key and those before it."""
    batch, heads, length, dim = q.shape
    if out is None:
        out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    strides = [tensor.stride(axis) for tensor in (q, k, v, out) for axis in (0, 1, 2)]
    grid = lambda meta: (batch * heads * triton.cdiv(length, meta["BLOCK"]),)
    attention_kernel[grid](
        q, k, v, out, heads, length, math.log2(math.e) / math.sqrt(dim), *strides, DIM=dim
    )
    return out
