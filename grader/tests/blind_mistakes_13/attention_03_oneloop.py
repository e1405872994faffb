# gpu-programming/triton-kernels/attention.py | two mistakes | `p = tl.exp(s - m_new[:, None])` and `rescale = tl.exp(m - m_new)` use the base e although scale already holds log2(e), so the weights are too sharp; both should be `tl.exp2`. `acc += tl.dot(p..., v)` adds to sums that are still relative to the old maximum; it should be `acc = acc * rescale[:, None] + tl.dot(...)`.
"""Causal attention without the matrix of scores: online softmax over blocks of keys, autotuned."""

import torch
import triton
import triton.language as tl

LOG2E = 1.4426950408889634


def _config(block_m, block_n, num_stages, num_warps):
    """One candidate: queries of a program and keys of a step, powers of two, pipeline depth and warps."""
    return triton.Config({"BLOCK_M": block_m, "BLOCK_N": block_n}, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [_config(128, 64, 3, 8), _config(64, 64, 3, 4), _config(64, 32, 3, 4), _config(16, 16, 2, 2)]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: tiles no longer than the sequence, and the last one alone for fp32."""
    longest = 0 if named_args["q_ptr"].dtype == torch.float32 else named_args["length"]
    return [config for config in configs if config.kwargs["BLOCK_M"] <= longest] or configs[-1:]


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, heads, length, scale,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_om,
    DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """A program owns BLOCK_M queries of one head; one loop over all keys up to its last query, with masks."""
    first = tl.program_id(1) * BLOCK_M
    b = (tl.program_id(0) // heads).to(tl.int64)
    h = (tl.program_id(0) % heads).to(tl.int64)

    i = first + tl.arange(0, BLOCK_M)
    e = tl.arange(0, DIM)
    i_ok = i < length
    q = tl.load(
        q_ptr + b * stride_qb + h * stride_qh + i.to(tl.int64)[:, None] * stride_qm + e[None, :],
        mask=i_ok[:, None],
        other=0.0,
    )
    k_base = k_ptr + b * stride_kb + h * stride_kh + e[None, :]
    v_base = v_ptr + b * stride_vb + h * stride_vh + e[None, :]

    m = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)

    # keys after the last query of this program are never needed
    for start in range(0, tl.minimum(first + BLOCK_M, length), BLOCK_N):
        j = start + tl.arange(0, BLOCK_N)
        j_ok = j < length
        k = tl.load(k_base + j.to(tl.int64)[:, None] * stride_kn, mask=j_ok[:, None], other=0.0)
        v = tl.load(v_base + j.to(tl.int64)[:, None] * stride_vn, mask=j_ok[:, None], other=0.0)

        # scores of the block, hidden keys at -inf
        s = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        s = tl.where((j[None, :] <= i[:, None]) & j_ok[None, :], s, -float("inf"))

        # recurrence of the online softmax
        m_new = tl.maximum(m, tl.max(s, axis=1))
        p = tl.exp(s - m_new[:, None])
        rescale = tl.exp(m - m_new)
        d = d * rescale + tl.sum(p, axis=1)
        acc += tl.dot(p.to(v.dtype), v, input_precision="ieee")
        m = m_new

    acc = acc / d[:, None]
    tl.store(
        out_ptr + b * stride_ob + h * stride_oh + i.to(tl.int64)[:, None] * stride_om + e[None, :],
        acc.to(out_ptr.dtype.element_ty),
        mask=i_ok[:, None],
    )


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v for each head, where a query sees its own key and those before it.

    q, k and v are (batch, heads, length, dim), bf16, fp16 or fp32, dim 16, 32, 64 or 128 and contiguous, any
    length from 1 on; the result goes to `out`, like q, where one is given. After Dao, arXiv:2307.08691.
    """
    batch, heads, length, dim = q.shape
    out = torch.empty(q.shape, device=q.device, dtype=q.dtype) if out is None else out
    grid = lambda meta: (batch * heads, triton.cdiv(length, meta["BLOCK_M"]))  # noqa: E731
    attention_kernel[grid](
        q, k, v, out, heads, length, LOG2E / dim**0.5,
        q.stride(0), q.stride(1), q.stride(2), k.stride(0), k.stride(1), k.stride(2),
        v.stride(0), v.stride(1), v.stride(2), out.stride(0), out.stride(1), out.stride(2), DIM=dim,
    )  # fmt: skip
    return out
