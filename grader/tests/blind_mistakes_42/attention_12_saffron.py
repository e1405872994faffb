# gpu-programming/triton-kernels/attention.py | wrong everywhere | In `step`, `d = state_d * factor + tl.sum(p, axis=1)` comes before `p = tl.where(seen, p, 0.0)`, so the weights of hidden keys (later ones and ones past the end) count in d; the where belongs before the sum. Shows in all cases, each row off by a factor, but for the last query of a block at the diagonal.
"""Causal attention by blocks of keys: online softmax in base 2, one program for each tile of queries of a head."""

import math

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"BLOCK_M": m, "BLOCK_N": n}, num_stages=stages, num_warps=warps)
    for m, n, stages, warps in ((128, 128, 2, 8), (128, 64, 3, 8), (64, 64, 3, 4), (32, 32, 2, 4))
]


def fitting(configs, named_args, **kwargs):
    """Tiles no longer than the sequence; exact fp32 has no tensor cores and takes the smallest one."""
    if named_args["q_ptr"].dtype == torch.float32:
        return configs[-1:]
    return [c for c in configs if c.kwargs["BLOCK_M"] <= named_args["length"]] or configs[-1:]


@triton.jit
def rows_of(base, stride, rows, cols, start, length, MASKED: tl.constexpr):
    """Some rows behind base, which is at position `start`; MASKED: 0 in place of rows past the end."""
    offsets = rows[:, None] * stride + cols[None, :]
    if MASKED:
        block = tl.load(base + offsets, mask=(start + rows)[:, None] < length, other=0.0)
    else:
        block = tl.load(base + offsets)
    return block


@triton.jit
def step(state_acc, state_m, state_d, q, k, v, queries, keys, scale, DIAGONAL: tl.constexpr):
    """The state after one more block of keys: sums relative to exp2(m), m the maximum of scale * scores."""
    scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
    if DIAGONAL:
        seen = queries[:, None] >= keys[None, :]
        top = tl.max(tl.where(seen, scores, -float("inf")), axis=1)
    else:
        top = tl.max(scores, axis=1)
    m = tl.maximum(state_m, top)
    p = tl.exp2(scores - m[:, None])
    factor = tl.exp2(state_m - m)
    d = state_d * factor + tl.sum(p, axis=1)
    if DIAGONAL:
        p = tl.where(seen, p, 0.0)
    acc = tl.dot(p.to(v.dtype), v, state_acc * factor[:, None], input_precision="ieee")
    return acc, m, d


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, heads, length, scale,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_om,
    DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """out = softmax(q k^T / sqrt(DIM)) v, causal; the tiles with the most keys come first.

    q, k, v and out are (batch, heads, length, DIM), the last dimension contiguous; scale is log2(e) / sqrt(DIM).
    """
    turn = tl.num_programs(axis=0) - 1 - tl.program_id(axis=0)
    both = tl.num_programs(axis=0) // tl.cdiv(length, BLOCK_M)  # batch times heads
    first = turn // both * BLOCK_M
    batch = (turn % both // heads).to(tl.int64)
    head = (turn % both % heads).to(tl.int64)
    row = first.to(tl.int64)

    q_base = q_ptr + batch * stride_qb + head * stride_qh + row * stride_qm
    k_base = k_ptr + batch * stride_kb + head * stride_kh
    v_base = v_ptr + batch * stride_vb + head * stride_vh
    o_base = out_ptr + batch * stride_ob + head * stride_oh + row * stride_om
    offs_m, offs_n, cols = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_N), tl.arange(0, DIM)

    q = rows_of(q_base, stride_qm, offs_m, cols, first, length, True)
    m = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)
    queries = first + offs_m

    for start in range(0, first, BLOCK_N):
        k = rows_of(k_base, stride_kn, offs_n, cols, start, length, False)
        v = rows_of(v_base, stride_vn, offs_n, cols, start, length, False)
        acc, m, d = step(acc, m, d, q, k, v, queries, start + offs_n, scale, False)
        k_base += BLOCK_N * stride_kn
        v_base += BLOCK_N * stride_vn

    for start in tl.range(first, tl.minimum(first + BLOCK_M, length), BLOCK_N, num_stages=1):
        k = rows_of(k_base, stride_kn, offs_n, cols, start, length, True)
        v = rows_of(v_base, stride_vn, offs_n, cols, start, length, True)
        acc, m, d = step(acc, m, d, q, k, v, queries, start + offs_n, scale, True)
        k_base += BLOCK_N * stride_kn
        v_base += BLOCK_N * stride_vn

    result = (acc / d[:, None]).to(out_ptr.dtype.element_ty)
    inside = queries[:, None] < length
    tl.store(o_base + offs_m[:, None] * stride_om + cols[None, :], result, mask=inside)


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v for each head, where a query sees its own key and those before it.

    q, k and v are (batch, heads, length, dim) of one dtype, dim contiguous; the result goes to `out`, if given.
    """
    batch, heads, length, dim = q.shape
    if out is None:
        out = torch.empty((batch, heads, length, dim), device=q.device, dtype=q.dtype)
    grid = lambda meta: (triton.cdiv(length, meta["BLOCK_M"]) * batch * heads,)  # noqa: E731
    attention_kernel[grid](
        q, k, v, out, heads, length, math.log2(math.e) / math.sqrt(dim),
        *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *out.stride()[:3],
        DIM=dim,
    )  # fmt: skip
    return out
