# gpu-programming/triton-kernels/attention.py | right | A program takes query tile i and its mirror image tiles - 1 - i, by one `range` whose step leads from one to the other (a single turn in the middle), so all programs do the same work; the diagonal blocks are folded first, then the full ones.
"""Causal attention: each program has a tile of early and a tile of late queries, so all do the same work."""

import math

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"BLOCK_M": block_m, "BLOCK_N": block_n}, num_stages=num_stages, num_warps=num_warps)
    for block_m, block_n, num_stages, num_warps in (
        (128, 64, 3, 8),
        (128, 64, 2, 8),
        (64, 64, 3, 4),
        (64, 64, 2, 4),
        (64, 32, 2, 4),
    )
]


def fitting(configs, named_args, **kwargs):
    """Tiles no longer than the sequence; the last one for short sequences, and alone for fp32."""
    longest = 0 if named_args["q_ptr"].dtype == torch.float32 else named_args["length"]
    return [config for config in configs if config.kwargs["BLOCK_M"] <= longest] or configs[-1:]


@triton.jit
def fold(acc, m, d, q, k_ptrs, v_ptrs, rows, keys, length, scale, DIAGONAL: tl.constexpr):
    """acc, m and d with one more block of keys; only at the diagonal may some be hidden or missing."""
    if DIAGONAL:
        k = tl.load(k_ptrs, mask=keys[:, None] < length, other=0.0)
        v = tl.load(v_ptrs, mask=keys[:, None] < length, other=0.0)
    else:
        k = tl.load(k_ptrs)
        v = tl.load(v_ptrs)
    scores = tl.dot(q, tl.trans(k), input_precision="ieee")
    if DIAGONAL:
        scores = tl.where(rows[:, None] >= keys[None, :], scores, -float("inf"))
    m_new = tl.maximum(m, scale * tl.max(scores, axis=1))
    p = tl.exp2(scale * scores - m_new[:, None])
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
    """Program (head, i) has tile i of the queries and tile i from the end; one of them in the middle."""
    tiles = tl.cdiv(length, BLOCK_M)
    pairs = tl.cdiv(tiles, 2)
    pid = tl.program_id(axis=0)
    batch = (pid // pairs // heads).to(tl.int64)
    head = (pid // pairs % heads).to(tl.int64)
    pair = pid % pairs

    q_head = q_ptr + batch * stride_qb + head * stride_qh
    k_head = k_ptr + batch * stride_kb + head * stride_kh
    v_head = v_ptr + batch * stride_vb + head * stride_vh
    out_head = out_ptr + batch * stride_ob + head * stride_oh
    lanes_m, lanes_n, dims = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_N), tl.arange(0, DIM)
    offsets_k = lanes_n[:, None] * stride_kn + dims[None, :]
    offsets_v = lanes_n[:, None] * stride_vn + dims[None, :]

    # Two turns, from one tile to its mirror image, and one where both are the same.
    for tile in range(pair, tiles - pair, tl.maximum(tiles - 1 - 2 * pair, 1)):
        start_m = tile * BLOCK_M
        rows = start_m + lanes_m
        exists = rows[:, None] < length
        first_row = tl.cast(start_m, tl.int64)
        q_ptrs = q_head + first_row * stride_qm + lanes_m[:, None] * stride_qm + dims[None, :]
        q = tl.load(q_ptrs, mask=exists, other=0.0)
        m = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
        d = tl.zeros((BLOCK_M,), dtype=tl.float32)
        acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)

        # The diagonal first: in its first block each query of the tile sees a key.
        k_at = k_head + first_row * stride_kn
        v_at = v_head + first_row * stride_vn
        for start_n in tl.range(start_m, tl.minimum(start_m + BLOCK_M, length), BLOCK_N, num_stages=1):
            acc, m, d = fold(
                acc, m, d, q, k_at + offsets_k, v_at + offsets_v, rows, start_n + lanes_n, length, scale, True
            )
            k_at += BLOCK_N * stride_kn
            v_at += BLOCK_N * stride_vn
        k_at = k_head
        v_at = v_head
        for start_n in range(0, start_m, BLOCK_N):
            acc, m, d = fold(
                acc, m, d, q, k_at + offsets_k, v_at + offsets_v, rows, start_n + lanes_n, length, scale, False
            )
            k_at += BLOCK_N * stride_kn
            v_at += BLOCK_N * stride_vn

        out_ptrs = out_head + first_row * stride_om + lanes_m[:, None] * stride_om + dims[None, :]
        tl.store(out_ptrs, (acc / d[:, None]).to(out_ptr.dtype.element_ty), mask=exists)


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v for each head, where a query sees its own key and those before it.

    q, k and v are (batch, heads, length, dim) with strides of their own, the last axis contiguous.
    """
    if out is None:
        out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    batch, heads, length, dim = q.shape

    def grid(meta):
        pairs = triton.cdiv(triton.cdiv(length, meta["BLOCK_M"]), 2)
        return (pairs * batch * heads,)

    attention_kernel[grid](
        q, k, v, out, heads, length, math.log2(math.e) / math.sqrt(dim),
        q.stride(0), q.stride(1), q.stride(2),
        k.stride(0), k.stride(1), k.stride(2),
        v.stride(0), v.stride(1), v.stride(2),
        out.stride(0), out.stride(1), out.stride(2),
        DIM=dim,
    )  # fmt: skip
    return out
