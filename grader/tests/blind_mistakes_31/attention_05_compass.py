# gpu-programming/triton-kernels/attention.py | right | right
"""Causal attention that begins at the diagonal and walks back to the first key, autotuned."""

import math

import torch
import triton
import triton.language as tl


def _config(size, num_stages, num_warps):
    """One candidate. Tiles are square, so exactly one block of keys meets the diagonal."""
    return triton.Config({"BLOCK_M": size, "BLOCK_N": size}, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [_config(128, 2, 8), _config(64, 3, 4), _config(64, 2, 4), _config(32, 2, 4)]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: tiles no longer than the sequence, and the last one alone for fp32."""
    if named_args["q_ptr"].dtype == torch.float32:
        return configs[-1:]
    return [config for config in configs if config.kwargs["BLOCK_M"] <= named_args["length"]] or configs[-1:]


@triton.jit
def fold(acc, m, d, q, k_ptrs, v_ptrs, offs_m, keys, length, scale, DIAGONAL: tl.constexpr):
    """The sums acc of p * v and d of p with one more block of keys, p = exp(scale * scores - m), and m.

    k_ptrs is (DIM, BLOCK_N), v_ptrs (BLOCK_N, DIM).
    """
    if DIAGONAL:
        k = tl.load(k_ptrs, mask=keys[None, :] < length, other=0.0)
        scores = scale * tl.dot(q, k, input_precision="ieee")
        scores = tl.where(keys[None, :] <= offs_m[:, None], scores, -float("inf"))
        v = tl.load(v_ptrs, mask=keys[:, None] < length, other=0.0)
    else:
        k = tl.load(k_ptrs)
        scores = scale * tl.dot(q, k, input_precision="ieee")
        v = tl.load(v_ptrs)
    m_new = tl.maximum(m, tl.max(scores, axis=1))
    shrink = tl.exp(m - m_new)
    p = tl.exp(scores - m_new[:, None])
    d = d * shrink + tl.sum(p, axis=1)
    acc = tl.dot(p.to(v.dtype), v, acc * shrink[:, None], input_precision="ieee")
    return acc, m_new, d


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, heads, length, scale,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_om,
    DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """A program owns BLOCK_M rows of one head. scale is 1 / sqrt(DIM).

    The diagonal comes first: each row finds its own key there, and m is finite from then on.
    """
    tl.static_assert(BLOCK_M == BLOCK_N)
    pid = tl.program_id(axis=0)
    tiles = tl.cdiv(length, BLOCK_M)
    first = (tiles - 1 - pid % tiles) * BLOCK_M
    plane = pid // tiles
    batch, head = (plane // heads).to(tl.int64), (plane % heads).to(tl.int64)

    offs_m = first + tl.arange(0, BLOCK_M)
    offs_n = first + tl.arange(0, BLOCK_N)
    offs_d = tl.arange(0, DIM)
    m_long, n_long = offs_m.to(tl.int64), offs_n.to(tl.int64)
    exists = offs_m[:, None] < length
    q_head = q_ptr + batch * stride_qb + head * stride_qh
    q = tl.load(q_head + m_long[:, None] * stride_qm + offs_d[None, :], mask=exists, other=0.0)
    k_head = k_ptr + batch * stride_kb + head * stride_kh
    k_ptrs = k_head + offs_d[:, None] + n_long[None, :] * stride_kn
    v_head = v_ptr + batch * stride_vb + head * stride_vh
    v_ptrs = v_head + n_long[:, None] * stride_vn + offs_d[None, :]

    m = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)
    acc, m, d = fold(acc, m, d, q, k_ptrs, v_ptrs, offs_m, offs_n, length, scale, DIAGONAL=True)
    for back in range(BLOCK_N, first + BLOCK_N, BLOCK_N):
        k_ptrs -= BLOCK_N * stride_kn
        v_ptrs -= BLOCK_N * stride_vn
        acc, m, d = fold(acc, m, d, q, k_ptrs, v_ptrs, offs_m, offs_n - back, length, scale, DIAGONAL=False)

    out_head = out_ptr + batch * stride_ob + head * stride_oh
    result = acc / d[:, None]
    tl.store(
        out_head + m_long[:, None] * stride_om + offs_d[None, :], result.to(out_ptr.dtype.element_ty), mask=exists
    )


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v for each head, where a query sees its own key and those before it."""
    out = torch.empty_like(q, memory_format=torch.contiguous_format) if out is None else out
    batch, heads, length, dim = q.shape
    strides = [tensor.stride(axis) for tensor in (q, k, v, out) for axis in (0, 1, 2)]
    grid = lambda meta: (batch * heads * triton.cdiv(length, meta["BLOCK_M"]),)  # noqa: E731
    attention_kernel[grid](q, k, v, out, heads, length, 1.0 / math.sqrt(dim), *strides, DIM=dim)
    return out
