# gpu-programming/triton-kernels/attention.py | two | (1) the kernel uses exp2 but scale on the host is 1 / sqrt(dim) without the factor log2(e), so the weights are too flat; (2) the values are addressed with the strides of k: the launch passes *k.stride()[:3] twice, in the place of v's strides too | "scale = log2(e) / sqrt(dim)" and "Each tensor has strides of its own"; (1) all inputs with length > 1; (2) only where the strides of v differ from those of k
"""Causal attention without the matrix of scores: online softmax over blocks of keys, autotuned."""

import math

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, num_stages, num_warps):
    """One candidate: queries of a program and keys of a step, powers of two, pipeline depth and warps."""
    return triton.Config({"BLOCK_M": block_m, "BLOCK_N": block_n}, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 64, 3, 8),
    _config(64, 64, 2, 4),
    _config(32, 32, 2, 4),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: tiles no longer than the sequence, and the last one alone for fp32."""
    # Exact fp32 runs without tensor cores, where a large tile unrolls into thousands of instructions.
    longest = 0 if named_args["q_ptr"].dtype == torch.float32 else named_args["length"]
    return [config for config in configs if config.kwargs["BLOCK_M"] <= longest] or configs[-1:]


@triton.jit
def head_block(ptr, b, h, stride_b, stride_h, stride_row, length, first, DIM: tl.constexpr, ROWS: tl.constexpr):
    """A block pointer to ROWS positions of one head."""
    return tl.make_block_ptr(
        ptr + b * stride_b + h * stride_h,
        shape=(length, DIM), strides=(stride_row, 1), offsets=(first, 0), block_shape=(ROWS, DIM), order=(1, 0),
    )  # fmt: skip


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, heads, length, scale,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_om,
    DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    tile = tl.cdiv(length, BLOCK_M) - 1 - tl.program_id(0)
    b = (tl.program_id(1) // heads).to(tl.int64)
    h = (tl.program_id(1) % heads).to(tl.int64)
    first = tile * BLOCK_M
    q_block = head_block(q_ptr, b, h, stride_qb, stride_qh, stride_qm, length, first, DIM, BLOCK_M)
    k_block = head_block(k_ptr, b, h, stride_kb, stride_kh, stride_kn, length, 0, DIM, BLOCK_N)
    v_block = head_block(v_ptr, b, h, stride_vb, stride_vh, stride_vn, length, 0, DIM, BLOCK_N)
    o_block = head_block(out_ptr, b, h, stride_ob, stride_oh, stride_om, length, first, DIM, BLOCK_M)
    q = tl.load(q_block, boundary_check=(0,), padding_option="zero")
    queries = first + tl.arange(0, BLOCK_M)

    m = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)
    for start in range(0, tl.minimum(first + BLOCK_M, length), BLOCK_N):
        k = tl.load(k_block, boundary_check=(0,), padding_option="zero")
        v = tl.load(v_block, boundary_check=(0,), padding_option="zero")
        scores = tl.dot(q, k.T, input_precision="ieee")
        keys = start + tl.arange(0, BLOCK_N)
        scores += tl.where(queries[:, None] >= keys[None, :], 0.0, -float("inf"))
        m_new = tl.maximum(m, scale * tl.max(scores, axis=1))
        p = tl.exp2(scale * scores - m_new[:, None])
        factor = tl.exp2(m - m_new)
        acc = acc * factor[:, None]
        acc = tl.dot(p.to(v.dtype), v, acc, input_precision="ieee")
        d = d * factor + tl.sum(p, axis=1)
        m = m_new
        k_block = tl.advance(k_block, (BLOCK_N, 0))
        v_block = tl.advance(v_block, (BLOCK_N, 0))
    acc = acc * (1.0 / d)[:, None]
    tl.store(o_block, acc.to(out_ptr.dtype.element_ty), boundary_check=(0,))


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v for each head, where a query sees its own key and those before it."""
    out = torch.empty_like(q) if out is None else out
    batch, heads, length, dim = q.shape
    scale = 1.0 / math.sqrt(dim)
    grid = lambda meta: (triton.cdiv(length, meta["BLOCK_M"]), batch * heads)  # noqa: E731
    attention_kernel[grid](
        q, k, v, out, heads, length, scale,
        *q.stride()[:3], *k.stride()[:3], *k.stride()[:3], *out.stride()[:3], DIM=dim,
    )  # fmt: skip
    return out
