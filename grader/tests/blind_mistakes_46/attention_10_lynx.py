# gpu-programming/triton-kernels/attention.py | corner | Heuristic of `attention_kernel`: `"EVEN": lambda args: args["length"] % args["BLOCK_N"] == 0` also removes the masks of q and of the store, so it should be `args["length"] % args["BLOCK_M"] == 0`. Shows where the length is a multiple of BLOCK_N but not of BLOCK_M: q is read and the result stored past the end of the head, into the next one or out of bounds (config 32 x 16, which is the only one for fp32 and for lengths below 64: length 48, for example; length 80 and 144 where the autotuner takes it).
"""Causal attention without the matrix of scores: online softmax over blocks of keys, autotuned."""

import math

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, num_stages, num_warps):
    """One candidate: queries of a program and keys of a step, powers of two, pipeline depth and warps."""
    return triton.Config({"BLOCK_M": block_m, "BLOCK_N": block_n}, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 128, 2, 8),
    _config(128, 64, 3, 8),
    _config(64, 64, 3, 4),
    _config(32, 16, 2, 4),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: tiles no longer than the sequence, and the last one alone for fp32."""
    longest = 0 if named_args["q_ptr"].dtype == torch.float32 else named_args["length"]
    return [config for config in configs if config.kwargs["BLOCK_M"] <= longest] or configs[-1:]


@triton.jit
def fold(
    acc, m, d, q, k_ptrs, v_ptrs, queries, keys, length, scale, DIAGONAL: tl.constexpr, EVEN: tl.constexpr
):
    """acc, m and d with one more block of keys; weights are powers of two, relative to m."""
    if DIAGONAL and not EVEN:
        k = tl.load(k_ptrs, mask=keys[None, :] < length, other=0.0)
    else:
        k = tl.load(k_ptrs)
    scores = tl.dot(q, k, input_precision="ieee")
    if DIAGONAL:
        scores = tl.where(queries[:, None] >= keys[None, :], scores, -float("inf"))
    m_new = tl.maximum(m, scale * tl.max(scores, axis=1))
    p = tl.exp2(scale * scores - m_new[:, None])
    factor = tl.exp2(m - m_new)
    d = d * factor + tl.sum(p, axis=1)
    if DIAGONAL and not EVEN:
        v = tl.load(v_ptrs, mask=keys[:, None] < length, other=0.0)
    else:
        v = tl.load(v_ptrs)
    acc = tl.dot(p.to(v.dtype), v, acc * factor[:, None], input_precision="ieee")
    return acc, m_new, d


# Where the length is a number of whole blocks, nothing lies past the end and no mask of the length is needed.
@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.heuristics({"EVEN": lambda args: args["length"] % args["BLOCK_N"] == 0})
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, heads, length, scale,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_om,
    DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    """A program has BLOCK_M queries of one head; axis 0 counts the heads, axis 1 the tiles from the last on."""
    batch = (tl.program_id(axis=0) // heads).to(tl.int64)
    head = (tl.program_id(axis=0) % heads).to(tl.int64)
    first = (tl.num_programs(axis=1) - 1 - tl.program_id(axis=1)) * BLOCK_M
    rows, cols, dims = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_N), tl.arange(0, DIM)
    queries = first + rows

    q_tile = q_ptr + batch * stride_qb + head * stride_qh + first.to(tl.int64) * stride_qm
    q_ptrs = q_tile + rows[:, None] * stride_qm + dims[None, :]
    if EVEN:
        q = tl.load(q_ptrs)
    else:
        q = tl.load(q_ptrs, mask=queries[:, None] < length, other=0.0)

    # One pointer for each of k and v moves; the offsets of a block stay.
    k_block = k_ptr + batch * stride_kb + head * stride_kh
    v_block = v_ptr + batch * stride_vb + head * stride_vh
    k_offs = cols[None, :] * stride_kn + dims[:, None]
    v_offs = cols[:, None] * stride_vn + dims[None, :]

    m = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)
    for start in tl.range(0, first, BLOCK_N):
        acc, m, d = fold(
            acc, m, d, q, k_block + k_offs, v_block + v_offs, queries, start + cols, length, scale, False, EVEN
        )
        k_block += BLOCK_N * stride_kn
        v_block += BLOCK_N * stride_vn
    for start in tl.range(first, tl.minimum(first + BLOCK_M, length), BLOCK_N, num_stages=1):
        acc, m, d = fold(
            acc, m, d, q, k_block + k_offs, v_block + v_offs, queries, start + cols, length, scale, True, EVEN
        )
        k_block += BLOCK_N * stride_kn
        v_block += BLOCK_N * stride_vn

    o_tile = out_ptr + batch * stride_ob + head * stride_oh + first.to(tl.int64) * stride_om
    o_ptrs = o_tile + rows[:, None] * stride_om + dims[None, :]
    result = (acc / d[:, None]).to(out_ptr.dtype.element_ty)
    if EVEN:
        tl.store(o_ptrs, result)
    else:
        tl.store(o_ptrs, result, mask=queries[:, None] < length)


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
