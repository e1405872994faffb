# gpu-programming/triton-kernels/attention.py | corner | the last config of CONFIGS has BLOCK_M = 16 and BLOCK_N = 32, so BLOCK_N does not divide BLOCK_M: in every second tile the unmasked loop of attention_kernel, range(0, first, BLOCK_N), runs 16 keys past the beginning of the tile, counts later keys (zeros past the end), and keys that the second loop counts again; shows in queries 16 to 31, 48 to 63 and so on, in fp32 with 17 keys or more and in 16 bits with 17 to 63 keys, where `fitting` takes this config; it should be (32, 32) or (16, 16)
"""Causal attention by blocks of keys: first those before the tile of queries, then those at the diagonal."""

import math

import torch
import triton
import triton.language as tl

SHAPES = ((128, 64, 3, 8), (64, 64, 3, 4), (64, 32, 4, 4), (16, 32, 2, 4))
CONFIGS = [
    triton.Config({"BLOCK_M": block_m, "BLOCK_N": block_n}, num_stages=stages, num_warps=warps)
    for block_m, block_n, stages, warps in SHAPES
]


def fitting(configs, named_args, **kwargs):
    """Large tiles for 16 bits where the sequence has as many queries; otherwise the small one alone."""
    if named_args["q_ptr"].dtype == torch.float32:
        return configs[-1:]
    large = [config for config in configs[:-1] if config.kwargs["BLOCK_M"] <= named_args["length"]]
    return large or configs[-1:]


@triton.jit
def head_of(pointer, batch, head, stride_b, stride_h):
    """The first element of one head."""
    return pointer + batch.to(tl.int64) * stride_b + head.to(tl.int64) * stride_h


@triton.jit
def fold(
    acc, m, d, q, k_head, v_head, queries, keys, length, stride_kn, stride_vn, scale,
    DIM: tl.constexpr, DIAGONAL: tl.constexpr,
):  # fmt: skip
    """acc, m and d with the block of keys folded in; at the diagonal a key may be later than a query."""
    dims = tl.arange(0, DIM)[None, :]
    place = keys.to(tl.int64)[:, None]
    real = (keys < length)[:, None]
    k = tl.load(k_head + place * stride_kn + dims, mask=real, other=0.0)
    scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
    if DIAGONAL:
        scores = tl.where(queries[:, None] >= keys[None, :], scores, -float("inf"))
    m_new = tl.maximum(m, tl.max(scores, axis=1))
    p = tl.exp2(scores - m_new[:, None])
    factor = tl.exp2(m - m_new)
    v = tl.load(v_head + place * stride_vn + dims, mask=real, other=0.0)
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
    """Program pid owns BLOCK_M queries of one head; scale is log2(e) / sqrt(DIM)."""
    pid = tl.program_id(axis=0)
    tiles = tl.cdiv(length, BLOCK_M)
    first = (tiles - 1 - pid % tiles) * BLOCK_M
    batch, head = pid // tiles // heads, pid // tiles % heads
    k_head = head_of(k_ptr, batch, head, stride_kb, stride_kh)
    v_head = head_of(v_ptr, batch, head, stride_vb, stride_vh)

    queries = first + tl.arange(0, BLOCK_M)
    rows = queries.to(tl.int64)[:, None]
    dims = tl.arange(0, DIM)[None, :]
    mask = queries[:, None] < length
    q_head = head_of(q_ptr, batch, head, stride_qb, stride_qh)
    q = tl.load(q_head + rows * stride_qm + dims, mask=mask, other=0.0)

    m = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)
    for start in tl.range(0, first, BLOCK_N):
        keys = start + tl.arange(0, BLOCK_N)
        acc, m, d = fold(
            acc, m, d, q, k_head, v_head, queries, keys, length, stride_kn, stride_vn, scale, DIM, False
        )
    for start in tl.range(first, tl.minimum(first + BLOCK_M, length), BLOCK_N, num_stages=1):
        keys = start + tl.arange(0, BLOCK_N)
        acc, m, d = fold(
            acc, m, d, q, k_head, v_head, queries, keys, length, stride_kn, stride_vn, scale, DIM, True
        )

    out_head = head_of(out_ptr, batch, head, stride_ob, stride_oh)
    tl.store(out_head + rows * stride_om + dims, (acc / d[:, None]).to(out_ptr.dtype.element_ty), mask=mask)


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v with a causal mask, for each of batch * heads heads."""
    batch, heads, length, dim = q.shape
    if out is None:
        out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    scale = 1.0 / (math.sqrt(dim) * math.log(2.0))
    q_b, q_h, q_m, _ = q.stride()
    k_b, k_h, k_n, _ = k.stride()
    v_b, v_h, v_n, _ = v.stride()
    out_b, out_h, out_m, _ = out.stride()
    grid = lambda meta: (batch * heads * triton.cdiv(length, meta["BLOCK_M"]),)  # noqa: E731
    attention_kernel[grid](
        q, k, v, out, heads, length, scale,
        q_b, q_h, q_m, k_b, k_h, k_n, v_b, v_h, v_n, out_b, out_h, out_m, DIM=dim,
    )  # fmt: skip
    return out
