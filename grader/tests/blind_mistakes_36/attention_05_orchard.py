# gpu-programming/triton-kernels/attention.py | right | right
"""Causal attention that begins at the diagonal and walks back to the first key."""

import math

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, num_stages, num_warps):
    """One candidate; BLOCK_N divides BLOCK_M."""
    return triton.Config({"BLOCK_M": block_m, "BLOCK_N": block_n}, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(*numbers)
    for numbers in ((128, 128, 2, 8), (128, 64, 3, 8), (128, 64, 2, 8), (64, 64, 3, 4), (64, 32, 3, 4), (32, 16, 2, 4))
]


def fitting(configs, named_args, **kwargs):
    """Tiles that the queries fill; the last one where none fits, and for fp32, whose products are exact."""
    if named_args["q_ptr"].dtype != torch.float32:
        fit = [config for config in configs if config.kwargs["BLOCK_M"] <= named_args["length"]]
        if fit:
            return fit
    return configs[-1:]


@triton.jit
def fold(acc, m, d, q, k_base, v_base, start, queries, length, scale, stride_kn, stride_vn,
         DIM: tl.constexpr, BLOCK_N: tl.constexpr, DIAGONAL: tl.constexpr):  # fmt: skip
    """acc, m and d after the keys from start on; the bases point at key 0 of the head."""
    near = tl.arange(0, BLOCK_N)
    dims = tl.arange(0, DIM)
    begin = tl.cast(start, tl.int64)
    k_ptrs = k_base + begin * stride_kn + (near[None, :] * stride_kn + dims[:, None])
    v_ptrs = v_base + begin * stride_vn + (near[:, None] * stride_vn + dims[None, :])
    keys = start + near
    if DIAGONAL:
        k = tl.load(k_ptrs, mask=keys[None, :] < length, other=0.0)
    else:
        k = tl.load(k_ptrs)
    scores = tl.dot(q, k, input_precision="ieee")
    if DIAGONAL:
        scores += tl.where(queries[:, None] < keys[None, :], -float("inf"), 0.0)
    m_new = tl.maximum(m, tl.max(scores, 1) * scale)
    p = tl.exp2(scores * scale - m_new[:, None])
    keep = tl.exp2(m - m_new)
    if DIAGONAL:
        v = tl.load(v_ptrs, mask=keys[:, None] < length, other=0.0)
    else:
        v = tl.load(v_ptrs)
    acc = tl.dot(p.to(v.dtype), v, acc * keep[:, None], input_precision="ieee")
    return acc, m_new, d * keep + tl.sum(p, 1)


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, heads, length, scale,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_om,
    DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """A program owns BLOCK_M queries of one head. scale is log2(e) / sqrt(DIM)."""
    tiles = tl.cdiv(length, BLOCK_M)
    sequences = tl.num_programs(0) // tiles
    tile = tiles - 1 - tl.program_id(0) // sequences
    sequence = tl.program_id(0) % sequences
    b = (sequence // heads).to(tl.int64)
    h = (sequence % heads).to(tl.int64)
    k_base = k_ptr + b * stride_kb + h * stride_kh
    v_base = v_ptr + b * stride_vb + h * stride_vh

    first = tile * BLOCK_M
    queries = first + tl.arange(0, BLOCK_M)
    position = queries.to(tl.int64)[:, None]
    dims = tl.arange(0, DIM)[None, :]
    real = queries[:, None] < length
    q = tl.load(q_ptr + b * stride_qb + h * stride_qh + position * stride_qm + dims, mask=real, other=0.0)

    m = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)

    # Key number first is visible to all queries of the tile, so m is finite after one step.
    for start in tl.range(first, tl.minimum(first + BLOCK_M, length), BLOCK_N, num_stages=1):
        acc, m, d = fold(acc, m, d, q, k_base, v_base, start, queries, length, scale, stride_kn, stride_vn,
                         DIM, BLOCK_N, DIAGONAL=True)  # fmt: skip
    # Back to key 0, the nearest block first.
    for back in tl.range(0, first // BLOCK_N):
        before = first - (back + 1) * BLOCK_N
        acc, m, d = fold(acc, m, d, q, k_base, v_base, before, queries, length, scale, stride_kn, stride_vn,
                         DIM, BLOCK_N, DIAGONAL=False)  # fmt: skip

    o_ptrs = out_ptr + b * stride_ob + h * stride_oh + position * stride_om + dims
    tl.store(o_ptrs, (acc / d[:, None]).to(out_ptr.dtype.element_ty), mask=real)


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v for each head, where a query sees its own key and those before it.

    q, k and v are (batch, heads, length, dim), of one dtype, each with strides of its own before dim.
    """
    n_batch, n_heads, length, dim = q.shape
    result = out
    if result is None:
        result = torch.empty((n_batch, n_heads, length, dim), dtype=q.dtype, device=q.device)
    strides = [stride for tensor in (q, k, v, result) for stride in tensor.stride()[:3]]
    attention_kernel[lambda meta: (n_batch * n_heads * triton.cdiv(length, meta["BLOCK_M"]),)](
        q, k, v, result, n_heads, length, math.log2(math.e) / math.sqrt(dim), *strides, DIM=dim
    )
    return result
