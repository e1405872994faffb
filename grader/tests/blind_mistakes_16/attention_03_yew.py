# gpu-programming/triton-kernels/attention.py | right | right
"""Causal attention with an online softmax; block pointers do the addresses."""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"BLOCK_M": 128, "BLOCK_N": 64}, num_stages=3, num_warps=8),
    triton.Config({"BLOCK_M": 64, "BLOCK_N": 64}, num_stages=3, num_warps=4),
    triton.Config({"BLOCK_M": 64, "BLOCK_N": 32}, num_stages=3, num_warps=4),
    triton.Config({"BLOCK_M": 16, "BLOCK_N": 32}, num_stages=2, num_warps=4),
]


def fitting(configs, named_args, **kwargs):
    """Tiles no longer than the sequence; the last one alone for fp32."""
    longest = 0 if named_args["q_ptr"].dtype == torch.float32 else named_args["length"]
    return [c for c in configs if c.kwargs["BLOCK_M"] <= longest] or configs[-1:]


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, heads, pairs, length, scale,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_om,
    DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """A program owns BLOCK_M queries of one of the pairs of batch and head; long rows come first."""
    pid = tl.program_id(axis=0)
    pair = pid % pairs
    start = (tl.cdiv(length, BLOCK_M) - 1 - pid // pairs) * BLOCK_M
    b = (pair // heads).to(tl.int64)
    h = (pair % heads).to(tl.int64)

    q_block = tl.make_block_ptr(
        q_ptr + b * stride_qb + h * stride_qh, shape=(length, DIM), strides=(stride_qm, 1),
        offsets=(start, 0), block_shape=(BLOCK_M, DIM), order=(1, 0),
    )  # fmt: skip
    k_block = tl.make_block_ptr(
        k_ptr + b * stride_kb + h * stride_kh, shape=(DIM, length), strides=(1, stride_kn),
        offsets=(0, 0), block_shape=(DIM, BLOCK_N), order=(0, 1),
    )  # fmt: skip
    v_block = tl.make_block_ptr(
        v_ptr + b * stride_vb + h * stride_vh, shape=(length, DIM), strides=(stride_vn, 1),
        offsets=(0, 0), block_shape=(BLOCK_N, DIM), order=(1, 0),
    )  # fmt: skip
    out_block = tl.make_block_ptr(
        out_ptr + b * stride_ob + h * stride_oh, shape=(length, DIM), strides=(stride_om, 1),
        offsets=(start, 0), block_shape=(BLOCK_M, DIM), order=(1, 0),
    )  # fmt: skip

    q = tl.load(q_block, boundary_check=(0,), padding_option="zero")
    rows = start + tl.arange(0, BLOCK_M)
    m = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)
    for n in range(0, tl.minimum(start + BLOCK_M, length), BLOCK_N):
        k = tl.load(k_block, boundary_check=(1,), padding_option="zero")
        v = tl.load(v_block, boundary_check=(0,), padding_option="zero")
        s = tl.dot(q, k, input_precision="ieee") * scale
        cols = n + tl.arange(0, BLOCK_N)
        s = tl.where(rows[:, None] >= cols[None, :], s, -float("inf"))
        m_new = tl.maximum(m, tl.max(s, axis=1))
        p = tl.exp(s - m_new[:, None])
        factor = tl.exp(m - m_new)
        d = d * factor + tl.sum(p, axis=1)
        acc = tl.dot(p.to(v.dtype), v, acc * factor[:, None], input_precision="ieee")
        m = m_new
        k_block = tl.advance(k_block, (0, BLOCK_N))
        v_block = tl.advance(v_block, (BLOCK_N, 0))

    acc = acc / d[:, None]
    tl.store(out_block, acc.to(out_ptr.dtype.element_ty), boundary_check=(0,))


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v for each head, where a query sees its own key and those before it."""
    batch, heads, length, dim = q.shape
    if out is None:
        out = torch.empty((batch, heads, length, dim), device=q.device, dtype=q.dtype)
    pairs = batch * heads
    grid = lambda meta: (pairs * triton.cdiv(length, meta["BLOCK_M"]),)  # noqa: E731
    attention_kernel[grid](
        q, k, v, out, heads, pairs, length, dim**-0.5,
        q.stride(0), q.stride(1), q.stride(2), k.stride(0), k.stride(1), k.stride(2),
        v.stride(0), v.stride(1), v.stride(2), out.stride(0), out.stride(1), out.stride(2),
        DIM=dim,
    )  # fmt: skip
    return out
