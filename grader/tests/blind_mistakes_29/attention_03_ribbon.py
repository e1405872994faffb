# gpu-programming/triton-kernels/attention.py | two mistakes | (1) attention: scale is dim ** -0.5, but the kernel takes exp2 of the scaled scores; the factor log2(e) = 1.4427 is missing, so the weights are too flat in every case with two keys or more; it should be math.log2(math.e) / math.sqrt(dim). (2) fold: `m = m_new` comes before `factor = tl.exp2(m - m_new)`, so factor is always 1, and acc and d of earlier blocks are not rescaled when a later block of keys raises the maximum; it shows in sequences longer than BLOCK_N; factor should be computed from the old m
"""Causal attention over blocks of keys; nothing of size length x length is stored."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, num_stages, num_warps):
    """A tile of queries, a block of keys, stages of the pipeline and warps."""
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n}
    return triton.Config(tile, num_warps=num_warps, num_stages=num_stages)


CONFIGS = [_config(128, 128, 2, 8), _config(128, 64, 3, 8), _config(64, 64, 3, 4), _config(32, 16, 2, 4)]


def fitting(configs, named_args, **kwargs):
    length, exact = named_args["length"], named_args["q_ptr"].dtype == torch.float32
    small = [] if exact else [config for config in configs if config.kwargs["BLOCK_M"] <= length]
    return small or configs[-1:]


@triton.jit
def start_of(ptr, pair, heads, stride_b, stride_h):
    """Where the matrix of one head of one batch begins; pair is int64."""
    return ptr + (pair // heads) * stride_b + (pair % heads) * stride_h


@triton.jit
def fold(acc, m, d, q, k_ptrs, v_ptrs, offs_m, keys, length, scale, DIAGONAL: tl.constexpr):
    """One more block of keys and values."""
    if DIAGONAL:
        k = tl.load(k_ptrs, mask=(keys < length)[:, None], other=0.0)
        v = tl.load(v_ptrs, mask=(keys < length)[:, None], other=0.0)
    else:
        k = tl.load(k_ptrs)
        v = tl.load(v_ptrs)
    scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
    if DIAGONAL:
        visible = offs_m[:, None] >= keys[None, :]
        scores = tl.where(visible, scores, -float("inf"))
    m_new = tl.maximum(m, tl.max(scores, axis=1))
    p = tl.exp2(scores - m_new[:, None])
    m = m_new
    factor = tl.exp2(m - m_new)
    d = d * factor + tl.sum(p, axis=1)
    acc = acc * factor[:, None]
    acc = tl.dot(p.to(v.dtype), v, acc, input_precision="ieee")
    return acc, m, d


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr,
    heads, length, scale,
    stride_qb, stride_qh, stride_qm,
    stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn,
    stride_ob, stride_oh, stride_om,
    DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    tiles = tl.cdiv(length, BLOCK_M)
    tile = tiles - 1 - tl.program_id(0) % tiles
    pair = (tl.program_id(0) // tiles).to(tl.int64)
    q_head = start_of(q_ptr, pair, heads, stride_qb, stride_qh)
    k_head = start_of(k_ptr, pair, heads, stride_kb, stride_kh)
    v_head = start_of(v_ptr, pair, heads, stride_vb, stride_vh)
    out_head = start_of(out_ptr, pair, heads, stride_ob, stride_oh)

    begin = tile * BLOCK_M
    offs_m = begin + tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    dims = tl.arange(0, DIM)[None, :]
    wide_m = offs_m.to(tl.int64)[:, None]
    exists = (offs_m < length)[:, None]
    q = tl.load(q_head + wide_m * stride_qm + dims, mask=exists, other=0.0)

    m = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)
    for start in range(0, begin, BLOCK_N):
        keys = start + offs_n
        wide_n = keys.to(tl.int64)[:, None]
        k_ptrs = k_head + wide_n * stride_kn + dims
        v_ptrs = v_head + wide_n * stride_vn + dims
        acc, m, d = fold(acc, m, d, q, k_ptrs, v_ptrs, offs_m, keys, length, scale, DIAGONAL=False)
    for start in tl.range(begin, tl.minimum(begin + BLOCK_M, length), BLOCK_N, num_stages=1):
        keys = start + offs_n
        wide_n = keys.to(tl.int64)[:, None]
        k_ptrs = k_head + wide_n * stride_kn + dims
        v_ptrs = v_head + wide_n * stride_vn + dims
        acc, m, d = fold(acc, m, d, q, k_ptrs, v_ptrs, offs_m, keys, length, scale, DIAGONAL=True)

    acc = acc / d[:, None]
    tl.store(out_head + wide_m * stride_om + dims, acc.to(out_ptr.dtype.element_ty), mask=exists)


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """A query sees its own key and those before it."""
    batch, heads, length, dim = q.shape
    if out is None:
        out = torch.empty((batch, heads, length, dim), dtype=q.dtype, device=q.device)
    scale = dim**-0.5
    grid = lambda meta: (batch * heads * triton.cdiv(length, meta["BLOCK_M"]),)  # noqa: E731
    attention_kernel[grid](
        q, k, v, out,
        heads, length, scale,
        q.stride(0), q.stride(1), q.stride(2),
        k.stride(0), k.stride(1), k.stride(2),
        v.stride(0), v.stride(1), v.stride(2),
        out.stride(0), out.stride(1), out.stride(2),
        DIM=dim,
    )  # fmt: skip
    return out
