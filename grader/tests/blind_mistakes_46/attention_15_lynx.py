# gpu-programming/triton-kernels/attention.py | right | A program has two tiles of queries, tile j and tile tiles - 1 - j, in an outer loop of one or two turns, so that all programs have the same number of keys; the grid is half as long (rounded up), and the middle tile of an odd number has one turn.
"""Causal attention; a program takes a tile of late queries and the early one opposite to it, autotuned."""

import math

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, num_stages, num_warps):
    """Queries of a tile, keys of a step, depth of the pipeline, warps."""
    return triton.Config({"BLOCK_M": block_m, "BLOCK_N": block_n}, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [_config(128, 128, 2, 8), _config(128, 64, 3, 8), _config(64, 64, 3, 4), _config(32, 32, 2, 4)]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: tiles no longer than the sequence, and the last one alone for fp32."""
    longest = 0 if named_args["q_ptr"].dtype == torch.float32 else named_args["length"]
    return [config for config in configs if config.kwargs["BLOCK_M"] <= longest] or configs[-1:]


@triton.jit
def step(m, d, acc, q, k_ptrs, v_ptrs, rows, keys, length, scale, MASKED: tl.constexpr):
    """The state of the softmax after one block of keys; k is (DIM, BLOCK_N), v is (BLOCK_N, DIM).

    m is in units of scores times scale, where the weights are powers of two.
    """
    if MASKED:
        k = tl.load(k_ptrs, mask=keys[None, :] < length, other=0.0)
    else:
        k = tl.load(k_ptrs)
    scores = tl.dot(q, k, input_precision="ieee")
    if MASKED:
        scores = tl.where(keys[None, :] > rows[:, None], -float("inf"), scores)
    m_new = tl.maximum(m, tl.max(scores, axis=1) * scale)
    p = tl.exp2(scores * scale - m_new[:, None])
    shrink = tl.exp2(m - m_new)
    d = d * shrink + tl.sum(p, axis=1)
    if MASKED:
        v = tl.load(v_ptrs, mask=keys[:, None] < length, other=0.0)
    else:
        v = tl.load(v_ptrs)
    acc = tl.dot(p.to(v.dtype), v, acc * shrink[:, None], input_precision="ieee")
    return m_new, d, acc


@triton.jit
def attend(
    q_head, k_head, v_head, out_head, first, length, scale, stride_qm, stride_kn, stride_vn, stride_om,
    DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Write the result for BLOCK_M queries of one head, from number `first` on."""
    dims = tl.arange(0, DIM)
    cols = tl.arange(0, BLOCK_N)
    rows = first + tl.arange(0, BLOCK_M)
    exists = rows[:, None] < length
    q_ptrs = q_head + rows.to(tl.int64)[:, None] * stride_qm + dims[None, :]
    q = tl.load(q_ptrs, mask=exists, other=0.0)
    k_offs = cols[None, :] * stride_kn + dims[:, None]
    v_offs = cols[:, None] * stride_vn + dims[None, :]

    m = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)
    k_block, v_block = k_head, v_head
    for start in tl.range(0, first, BLOCK_N):
        k_ptrs, v_ptrs = k_block + k_offs, v_block + v_offs
        m, d, acc = step(m, d, acc, q, k_ptrs, v_ptrs, rows, start + cols, length, scale, MASKED=False)
        k_block += BLOCK_N * stride_kn
        v_block += BLOCK_N * stride_vn
    for start in tl.range(first, tl.minimum(first + BLOCK_M, length), BLOCK_N, num_stages=1):
        k_ptrs, v_ptrs = k_block + k_offs, v_block + v_offs
        m, d, acc = step(m, d, acc, q, k_ptrs, v_ptrs, rows, start + cols, length, scale, MASKED=True)
        k_block += BLOCK_N * stride_kn
        v_block += BLOCK_N * stride_vn

    out_ptrs = out_head + rows.to(tl.int64)[:, None] * stride_om + dims[None, :]
    tl.store(out_ptrs, (acc / d[:, None]).to(out_head.dtype.element_ty), mask=exists)


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, heads, length, scale,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_om,
    DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Program (i, j) has tiles j and tiles - 1 - j of head i: together all have the same number of keys."""
    batch = (tl.program_id(axis=0) // heads).to(tl.int64)
    head = (tl.program_id(axis=0) % heads).to(tl.int64)
    q_head = q_ptr + batch * stride_qb + head * stride_qh
    k_head = k_ptr + batch * stride_kb + head * stride_kh
    v_head = v_ptr + batch * stride_vb + head * stride_vh
    out_head = out_ptr + batch * stride_ob + head * stride_oh
    early = tl.program_id(axis=1)
    late = tl.cdiv(length, BLOCK_M) - 1 - early
    # The tile in the middle of an odd number of tiles is its own opposite, and has one turn.
    for turn in tl.range(0, tl.minimum(late - early, 1) + 1):
        first = (late - turn * (late - early)) * BLOCK_M
        attend(
            q_head, k_head, v_head, out_head, first, length, scale, stride_qm, stride_kn, stride_vn, stride_om,
            DIM, BLOCK_M, BLOCK_N,
        )  # fmt: skip


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v for each head, where a query sees its own key and those before it."""
    if out is None:
        out = torch.empty(q.shape, device=q.device, dtype=q.dtype)
    batch, heads, length, dim = q.shape
    pairs = lambda meta: (batch * heads, triton.cdiv(triton.cdiv(length, meta["BLOCK_M"]), 2))  # noqa: E731
    attention_kernel[pairs](
        q, k, v, out, heads, length, math.log2(math.e) / math.sqrt(dim),
        *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *out.stride()[:3], DIM=dim,
    )  # fmt: skip
    return out
