# gpu-programming/triton-kernels/attention.py | wrong everywhere | scores of hidden keys are set to 0 instead of -inf, so keys of the future get the weight exp(0 - m); they must be -inf before the maximum is taken; shows in nearly every row
"""Causal attention in one loop over the keys, with the mask in every block."""

import math

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"BLOCK_M": 128, "BLOCK_N": 64}, num_stages=3, num_warps=8),
    triton.Config({"BLOCK_M": 64, "BLOCK_N": 64}, num_stages=3, num_warps=4),
    triton.Config({"BLOCK_M": 32, "BLOCK_N": 32}, num_stages=2, num_warps=4),
]


def fitting(configs, named_args, **kwargs):
    """Tiles no longer than the sequence, the small one for fp32."""
    if named_args["q_ptr"].dtype == torch.float32:
        return configs[-1:]
    return [c for c in configs if c.kwargs["BLOCK_M"] <= named_args["length"]] or configs[-1:]


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, heads, length, scale,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_om,
    DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    tiles = tl.cdiv(length, BLOCK_M)
    pid = tl.program_id(0)
    which = pid // tiles
    b = (which // heads).to(tl.int64)
    h = (which % heads).to(tl.int64)
    first = (pid % tiles) * BLOCK_M

    i = first + tl.arange(0, BLOCK_M)
    x = tl.arange(0, DIM)[None, :]
    i_ok = (i < length)[:, None]
    q = tl.load(q_ptr + b * stride_qb + h * stride_qh + i.to(tl.int64)[:, None] * stride_qm + x, mask=i_ok, other=0.0)
    k_ptr += b * stride_kb + h * stride_kh
    v_ptr += b * stride_vb + h * stride_vh

    m = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)
    for start in range(0, tl.minimum(first + BLOCK_M, length), BLOCK_N):
        j = start + tl.arange(0, BLOCK_N)
        j_ok = (j < length)[:, None]
        k = tl.load(k_ptr + j.to(tl.int64)[:, None] * stride_kn + x, mask=j_ok, other=0.0)
        v = tl.load(v_ptr + j.to(tl.int64)[:, None] * stride_vn + x, mask=j_ok, other=0.0)
        s = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        s = tl.where(i[:, None] >= j[None, :], s, 0.0)
        m_new = tl.maximum(m, tl.max(s, axis=1))
        p = tl.exp2(s - m_new[:, None])
        f = tl.exp2(m - m_new)
        d = d * f + tl.sum(p, axis=1)
        acc = tl.dot(p.to(v.dtype), v, acc * f[:, None], input_precision="ieee")
        m = m_new

    o_ptr = out_ptr + b * stride_ob + h * stride_oh
    tl.store(o_ptr + i.to(tl.int64)[:, None] * stride_om + x, (acc / d[:, None]).to(out_ptr.dtype.element_ty), mask=i_ok)


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v for each head, causal."""
    batch, heads, length, dim = q.shape
    if out is None:
        out = torch.empty((batch, heads, length, dim), device=q.device, dtype=q.dtype)
    grid = lambda meta: (batch * heads * triton.cdiv(length, meta["BLOCK_M"]),)  # noqa: E731
    attention_kernel[grid](
        q, k, v, out, heads, length, math.log2(math.e) / math.sqrt(dim),
        *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *out.stride()[:3], DIM=dim,
    )  # fmt: skip
    return out
