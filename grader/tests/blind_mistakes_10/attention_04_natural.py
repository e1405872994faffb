# gpu-programming/triton-kernels/attention.py | error | the second product takes p in fp32 and v in its own dtype, `tl.dot(p, v, ...)`; must be p.to(v.dtype): tl.dot needs both operands in one dtype, so the kernel does not compile for fp16 and bf16. Shows there; fp32 works.
"""Causal attention with exp, the natural exponential: scores, weights and sums stay in fp32."""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"BLOCK_M": bm, "BLOCK_N": bn}, num_stages=stages, num_warps=warps)
    for bm, bn, stages, warps in [(128, 64, 2, 8), (64, 64, 2, 4), (64, 32, 3, 4), (16, 16, 2, 2)]
]


def fitting(configs, named_args, **kwargs):
    """Tiles no longer than the sequence; for fp32 the smallest one."""
    if named_args["q_ptr"].dtype == torch.float32:
        return configs[-1:]
    return [config for config in configs if config.kwargs["BLOCK_M"] <= named_args["length"]] or configs[-1:]


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, heads, length, scale,
    qb, qh, qm, kb, kh, kn, vb, vh, vn, ob, oh, om,
    DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    b = (tl.program_id(0) // heads).to(tl.int64)
    h = (tl.program_id(0) % heads).to(tl.int64)
    begin = tl.program_id(1) * BLOCK_M
    i = begin + tl.arange(0, BLOCK_M).to(tl.int64)[:, None]
    c = tl.arange(0, DIM)
    q = tl.load(q_ptr + b * qb + h * qh + i * qm + c[None, :], mask=i < length, other=0.0)
    m = tl.full((BLOCK_M, 1), -float("inf"), dtype=tl.float32)
    d = tl.zeros((BLOCK_M, 1), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)
    for start in range(0, tl.minimum(begin + BLOCK_M, length), BLOCK_N):
        j = start + tl.arange(0, BLOCK_N).to(tl.int64)
        k = tl.load(k_ptr + b * kb + h * kh + j[:, None] * kn + c[None, :], mask=j[:, None] < length, other=0.0)
        v = tl.load(v_ptr + b * vb + h * vh + j[:, None] * vn + c[None, :], mask=j[:, None] < length, other=0.0)
        scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        scores = tl.where(j[None, :] <= i, scores, -float("inf"))
        m_new = tl.maximum(m, tl.max(scores, axis=1, keep_dims=True))
        p = tl.exp(scores - m_new)
        shrink = tl.exp(m - m_new)
        d = d * shrink + tl.sum(p, axis=1, keep_dims=True)
        acc = acc * shrink + tl.dot(p, v, input_precision="ieee")
        m = m_new
    result = (acc / d).to(out_ptr.dtype.element_ty)
    tl.store(out_ptr + b * ob + h * oh + i * om + c[None, :], result, mask=i < length)


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v for each head."""
    if out is None:
        out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    batch, heads, length, dim = q.shape
    strides = []
    for t in (q, k, v, out):
        strides.extend(t.stride()[:3])

    def grid(meta):
        return batch * heads, triton.cdiv(length, meta["BLOCK_M"])

    attention_kernel[grid](q, k, v, out, heads, length, dim**-0.5, *strides, DIM=dim)
    return out
