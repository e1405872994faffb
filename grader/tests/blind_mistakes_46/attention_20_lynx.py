# gpu-programming/triton-kernels/attention.py | wrong everywhere | In `products`: `tl.reshape(k, (DIM, BLOCK_N))` keeps the order of the elements in memory and is not the transposed block; it should be `tl.trans(k)`. Wrong in all cases but those of one key.
"""Causal attention: each tile of queries meets its own keys first, and then all earlier ones; autotuned."""

import math

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, num_stages, num_warps):
    """One candidate: queries of a program and keys of a step, powers of two, pipeline depth and warps."""
    return triton.Config({"BLOCK_M": block_m, "BLOCK_N": block_n}, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [_config(128, 64, 3, 8), _config(128, 64, 2, 8), _config(64, 64, 3, 4), _config(32, 32, 2, 4)]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: tiles no longer than the sequence, and the last one alone for fp32."""
    longest = 0 if named_args["q_ptr"].dtype == torch.float32 else named_args["length"]
    return [config for config in configs if config.kwargs["BLOCK_M"] <= longest] or configs[-1:]


@triton.jit
def products(q, k, DIM: tl.constexpr, BLOCK_N: tl.constexpr):
    """Each query times each key: (BLOCK_M, DIM) by (DIM, BLOCK_N), from a block k of BLOCK_N rows."""
    return tl.dot(q, tl.reshape(k, (DIM, BLOCK_N)), input_precision="ieee")


@triton.jit
def absorb(acc, m, d, scores, v, scale):
    """acc, m and d with one more block of scores and values; m is the largest score times scale."""
    m_new = tl.maximum(m, tl.max(scores, axis=1) * scale)
    p = tl.exp2(scores * scale - m_new[:, None])
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
    """Program (i, j) has head i and tile j of its queries, from the last tile on."""
    tl.static_assert(BLOCK_M % BLOCK_N == 0, "the first loop starts where a block of keys starts")
    batch = (tl.program_id(axis=0) // heads).to(tl.int64)
    head = (tl.program_id(axis=0) % heads).to(tl.int64)
    first = (tl.cdiv(length, BLOCK_M) - 1 - tl.program_id(axis=1)) * BLOCK_M
    dims = tl.arange(0, DIM)
    block = tl.arange(0, BLOCK_N)
    queries = first + tl.arange(0, BLOCK_M)
    exists = queries[:, None] < length

    q_rows = q_ptr + batch * stride_qb + head * stride_qh + queries.to(tl.int64)[:, None] * stride_qm
    k_head = k_ptr + batch * stride_kb + head * stride_kh
    v_head = v_ptr + batch * stride_vb + head * stride_vh
    k_offs = block[:, None] * stride_kn + dims[None, :]
    v_offs = block[:, None] * stride_vn + dims[None, :]
    q = tl.load(q_rows + dims[None, :], mask=exists, other=0.0)

    m = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)

    # The tile's own keys: some are hidden, and the last ones may not exist.
    k_block = k_head + first.to(tl.int64) * stride_kn
    v_block = v_head + first.to(tl.int64) * stride_vn
    for start in tl.range(first, tl.minimum(first + BLOCK_M, length), BLOCK_N, num_stages=1):
        keys = start + block
        k = tl.load(k_block + k_offs, mask=keys[:, None] < length, other=0.0)
        scores = products(q, k, DIM, BLOCK_N)
        scores = tl.where(keys[None, :] <= queries[:, None], scores, -float("inf"))
        v = tl.load(v_block + v_offs, mask=keys[:, None] < length, other=0.0)
        acc, m, d = absorb(acc, m, d, scores, v, scale)
        k_block += BLOCK_N * stride_kn
        v_block += BLOCK_N * stride_vn

    # All keys before the tile, without a mask.
    k_block, v_block = k_head, v_head
    for _ in tl.range(0, first, BLOCK_N):
        k = tl.load(k_block + k_offs)
        scores = products(q, k, DIM, BLOCK_N)
        v = tl.load(v_block + v_offs)
        acc, m, d = absorb(acc, m, d, scores, v, scale)
        k_block += BLOCK_N * stride_kn
        v_block += BLOCK_N * stride_vn

    out_rows = out_ptr + batch * stride_ob + head * stride_oh + queries.to(tl.int64)[:, None] * stride_om
    tl.store(out_rows + dims[None, :], (acc / d[:, None]).to(out_ptr.dtype.element_ty), mask=exists)


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v for each head, where a query sees its own key and those before it."""
    if out is None:
        out = torch.empty(q.shape, device=q.device, dtype=q.dtype)
    batch, heads, length, dim = q.shape
    grid = lambda meta: (batch * heads, triton.cdiv(length, meta["BLOCK_M"]))  # noqa: E731
    attention_kernel[grid](
        q, k, v, out, heads, length, math.log2(math.e) / math.sqrt(dim),
        *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *out.stride()[:3], DIM=dim,
    )  # fmt: skip
    return out
