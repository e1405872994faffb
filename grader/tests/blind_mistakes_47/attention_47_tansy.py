# gpu-programming/triton-kernels/attention.py | wrong everywhere | In `attention_kernel`, `d = tl.full((BLOCK,), 1.0, dtype=tl.float32)` should be `tl.zeros((BLOCK,), dtype=tl.float32)`: the tile on the diagonal is added with `d += tl.sum(p, axis=1)` and no factor exp2(-inf) = 0 removes the 1. Every row is too small by a factor d / (d + 1) (before rescaling by later tiles), the first row by one half, in all cases.
"""Causal attention with square tiles: the one on the diagonal first, then those before it, autotuned."""

import math

import torch
import triton
import triton.language as tl


def _config(block, num_stages, num_warps):
    """One candidate: queries of a program and keys of a step, pipeline depth and warps."""
    return triton.Config({"BLOCK": block}, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [_config(128, 2, 8), _config(64, 3, 4), _config(64, 2, 4), _config(32, 2, 4)]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: tiles no longer than the sequence, and the last one alone for fp32."""
    longest = 0 if named_args["q_ptr"].dtype == torch.float32 else named_args["length"]
    return [config for config in configs if config.kwargs["BLOCK"] <= longest] or configs[-1:]


@triton.jit
def _weighted(p, v, acc):
    """acc + p @ v on the tensor cores, where the dtype of v has them; exact for fp32."""
    return tl.dot(p.to(v.dtype), v, acc, input_precision="ieee")


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, pairs, heads, length, scale,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_om,
    DIM: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """out[i, :] = sum over j <= i of softmax(q k^T)[i, j] v[j, :]; a program owns BLOCK rows of one head.

    q, k, v and out are (batch, heads, length, DIM), pairs is batch * heads, scale is log2(e) / sqrt(DIM). The tiles
    with the most keys start first.
    """
    pid = tl.program_id(axis=0)
    first = (tl.cdiv(length, BLOCK) - 1 - pid // pairs) * BLOCK
    batch, head = (pid % pairs // heads).to(tl.int64), (pid % pairs % heads).to(tl.int64)
    begin = first.to(tl.int64)

    local, dims = tl.arange(0, BLOCK), tl.arange(0, DIM)
    k_offs = local[:, None] * stride_kn + dims[None, :]
    v_offs = local[:, None] * stride_vn + dims[None, :]
    q_ptr += batch * stride_qb + head * stride_qh + begin * stride_qm
    k_ptr += batch * stride_kb + head * stride_kh
    v_ptr += batch * stride_vb + head * stride_vh
    exists = (first + local < length)[:, None]
    q = tl.load(q_ptr + local[:, None] * stride_qm + dims[None, :], mask=exists, other=0.0)

    d = tl.full((BLOCK,), 1.0, dtype=tl.float32)
    acc = tl.zeros((BLOCK, DIM), dtype=tl.float32)

    # The tile on the diagonal has a key for each query, so its maximum is finite, and there is nothing to rescale yet.
    k = tl.load(k_ptr + begin * stride_kn + k_offs, mask=exists, other=0.0)
    v = tl.load(v_ptr + begin * stride_vn + v_offs, mask=exists, other=0.0)
    scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
    scores = tl.where(local[:, None] >= local[None, :], scores, -float("inf"))
    m = tl.max(scores, axis=1)
    p = tl.exp2(scores - m[:, None])
    d += tl.sum(p, axis=1)
    acc = _weighted(p, v, acc)

    # All keys before the tile are visible to all of its queries.
    for _ in range(0, first, BLOCK):
        k = tl.load(k_ptr + k_offs)
        v = tl.load(v_ptr + v_offs)
        scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        m_new = tl.maximum(m, tl.max(scores, axis=1))
        shrink = tl.exp2(m - m_new)
        p = tl.exp2(scores - m_new[:, None])
        d = d * shrink + tl.sum(p, axis=1)
        acc = _weighted(p, v, acc * shrink[:, None])
        m = m_new
        k_ptr += BLOCK * stride_kn
        v_ptr += BLOCK * stride_vn

    out_ptr += batch * stride_ob + head * stride_oh + begin * stride_om
    result = (acc / d[:, None]).to(out_ptr.dtype.element_ty)
    tl.store(out_ptr + local[:, None] * stride_om + dims[None, :], result, mask=exists)


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v for each head, where a query sees its own key and those before it.

    q, k and v are (batch, heads, length, dim), bf16, fp16 or fp32, dim 16, 32, 64 or 128 and contiguous, any
    length from 1 on; the result goes to `out`, like q, where one is given. After Dao, arXiv:2307.08691.
    """
    batch, heads, length, dim = q.shape
    if out is None:
        out = torch.empty((batch, heads, length, dim), dtype=q.dtype, device=q.device)
    pairs = batch * heads
    attention_kernel[lambda meta: (triton.cdiv(length, meta["BLOCK"]) * pairs,)](
        q, k, v, out, pairs, heads, length, math.log2(math.e) / math.sqrt(dim),
        q.stride(0), q.stride(1), q.stride(2), k.stride(0), k.stride(1), k.stride(2),
        v.stride(0), v.stride(1), v.stride(2), out.stride(0), out.stride(1), out.stride(2),
        DIM=dim,
    )  # fmt: skip
    return out
