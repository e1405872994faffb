# gpu-programming/triton-kernels/attention.py | wrong everywhere | In fold the causal mask of the diagonal block is the wrong way round: tl.where(keys[None, :] >= rows[:, None], s, -inf) keeps a query's own and the LATER keys of its tile (also the zero keys past the end) and hides the earlier ones of the tile; it should keep keys[None, :] <= rows[:, None]. Wrong for every length, dtype and layout (of a length-1 sequence the zero keys past the end count, too).
"""Causal attention with square tiles: as many keys in a step as a program has queries."""

import math

import torch
import triton
import triton.language as tl


def _config(block, num_stages, num_warps):
    """One candidate: a square of queries and keys, pipeline depth and warps."""
    return triton.Config({"BLOCK": block}, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [_config(128, 2, 8), _config(64, 3, 4), _config(64, 2, 4), _config(32, 2, 4)]


def fitting(configs, named_args, **kwargs):
    """Squares no longer than the sequence; exact fp32 gets the smallest one."""
    if named_args["q_ptr"].dtype == torch.float32:
        return configs[-1:]
    return [config for config in configs if config.kwargs["BLOCK"] <= named_args["length"]] or configs[-1:]


@triton.jit
def fold(acc, m, d, q, k_block, v_block, rows, keys, length, scale, DIAGONAL: tl.constexpr):
    """One more square: k_block are pointers (DIM, BLOCK), v_block pointers (BLOCK, DIM)."""
    if DIAGONAL:
        inside = keys < length
        k = tl.load(k_block, mask=inside[None, :], other=0.0)
        v = tl.load(v_block, mask=inside[:, None], other=0.0)
    else:
        k = tl.load(k_block)
        v = tl.load(v_block)
    s = tl.dot(q, k, input_precision="ieee")
    if DIAGONAL:
        s = tl.where(keys[None, :] >= rows[:, None], s, -float("inf"))
    top = tl.maximum(m, scale * tl.max(s, axis=1))
    p = tl.exp2(scale * s - top[:, None])
    shrink = tl.exp2(m - top)
    d = d * shrink + tl.sum(p, axis=1)
    acc = tl.dot(p.to(v.dtype), v, acc * shrink[:, None], input_precision="ieee")
    return acc, top, d


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, heads, length, scale,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_om,
    DIM: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """A program owns BLOCK queries of one head: the squares left of the diagonal, then the one on it."""
    tiles = tl.cdiv(length, BLOCK)
    pairs = tl.num_programs(0) // tiles
    # Long rows first: the lowest numbers get the last tile of every head.
    tile = tiles - 1 - tl.program_id(0) // pairs
    pair = tl.program_id(0) % pairs
    batch, head = (pair // heads).to(tl.int64), (pair % heads).to(tl.int64)

    within = tl.arange(0, BLOCK)
    lanes = tl.arange(0, DIM)
    first = tile * BLOCK
    far = first.to(tl.int64)
    rows = first + within
    exists = rows < length

    q_tile = q_ptr + batch * stride_qb + head * stride_qh + far * stride_qm
    k_head = k_ptr + batch * stride_kb + head * stride_kh
    v_head = v_ptr + batch * stride_vb + head * stride_vh
    o_tile = out_ptr + batch * stride_ob + head * stride_oh + far * stride_om
    k_offs = lanes[:, None] + within[None, :] * stride_kn
    v_offs = within[:, None] * stride_vn + lanes[None, :]

    q = tl.load(q_tile + within[:, None] * stride_qm + lanes[None, :], mask=exists[:, None], other=0.0)
    m = tl.full((BLOCK,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((BLOCK,), dtype=tl.float32)
    acc = tl.zeros((BLOCK, DIM), dtype=tl.float32)

    for start in range(0, first, BLOCK):
        acc, m, d = fold(
            acc, m, d, q, k_head + k_offs, v_head + v_offs, rows, start + within, length, scale, DIAGONAL=False
        )
        k_head += BLOCK * stride_kn
        v_head += BLOCK * stride_vn
    acc, m, d = fold(acc, m, d, q, k_head + k_offs, v_head + v_offs, rows, rows, length, scale, DIAGONAL=True)

    result = acc / d[:, None]
    tl.store(
        o_tile + within[:, None] * stride_om + lanes[None, :],
        result.to(out_ptr.dtype.element_ty),
        mask=exists[:, None],
    )


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v for each head, where a query sees its own key and those before it."""
    batch, heads, length, dim = q.shape
    if out is None:
        out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    scale = math.log2(math.e) / math.sqrt(dim)
    attention_kernel[lambda meta: (triton.cdiv(length, meta["BLOCK"]) * batch * heads,)](
        q, k, v, out, heads, length, scale,
        *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *out.stride()[:3],
        DIM=dim,
    )  # fmt: skip
    return out
