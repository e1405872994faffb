# gpu-programming/triton-kernels/attention.py | wrong everywhere | `scale` is 1 / sqrt(D) but the kernel uses exp2: the factor log2(e) is missing, the weights are too flat.
"""Causal attention. One loop over all the keys that a tile can see, with the same mask in every step."""

import math

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"BLOCK_M": 128, "BLOCK_N": 64}, num_stages=3, num_warps=8),
    triton.Config({"BLOCK_M": 64, "BLOCK_N": 64}, num_stages=3, num_warps=4),
    triton.Config({"BLOCK_M": 64, "BLOCK_N": 32}, num_stages=3, num_warps=4),
    triton.Config({"BLOCK_M": 16, "BLOCK_N": 16}, num_stages=2, num_warps=4),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: tiles no longer than the sequence, and the last one alone for fp32."""
    longest = 0 if named_args["Q"].dtype == torch.float32 else named_args["length"]
    return [config for config in configs if config.kwargs["BLOCK_M"] <= longest] or configs[-1:]


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def attention_kernel(
    Q, K, V, Out, heads, length, scale,
    qb, qh, qm, kb, kh, kn, vb, vh, vn, ob, oh, om,
    DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """A program owns BLOCK_M queries of one head."""
    tile = tl.num_programs(0) - 1 - tl.program_id(0)
    b = (tl.program_id(1) // heads).to(tl.int64)
    h = (tl.program_id(1) % heads).to(tl.int64)
    Q += b * qb + h * qh
    K += b * kb + h * kh
    V += b * vb + h * vh
    Out += b * ob + h * oh

    i = (tile * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)
    c = tl.arange(0, DIM)
    q = tl.load(Q + i[:, None] * qm + c[None, :], mask=(i < length)[:, None], other=0.0)
    m = tl.full([BLOCK_M], float("-inf"), tl.float32)
    d = tl.zeros([BLOCK_M], tl.float32)
    acc = tl.zeros([BLOCK_M, DIM], tl.float32)
    end = tl.minimum((tile + 1) * BLOCK_M, length)
    for n in range(0, end, BLOCK_N):
        j = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
        k = tl.load(K + j[:, None] * kn + c[None, :], mask=(j < length)[:, None], other=0.0)
        v = tl.load(V + j[:, None] * vn + c[None, :], mask=(j < length)[:, None], other=0.0)
        s = tl.dot(q, k.T, input_precision="ieee") * scale
        s = tl.where(j[None, :] <= i[:, None], s, float("-inf"))
        top = tl.maximum(m, tl.max(s, axis=1))
        p = tl.exp2(s - top[:, None])
        shrink = tl.exp2(m - top)
        acc = acc * shrink[:, None]
        acc += tl.dot(p.to(V.dtype.element_ty), v, input_precision="ieee")
        d = d * shrink + tl.sum(p, axis=1)
        m = top
    result = acc / d[:, None]
    tl.store(Out + i[:, None] * om + c[None, :], result.to(Out.dtype.element_ty), mask=(i < length)[:, None])


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v, causal."""
    B, H, L, D = q.shape
    if out is None:
        out = torch.empty((B, H, L, D), dtype=q.dtype, device=q.device)
    scale = 1.0 / math.sqrt(D)
    attention_kernel[lambda meta: (triton.cdiv(L, meta["BLOCK_M"]), B * H)](
        q, k, v, out, H, L, scale,
        *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *out.stride()[:3],
        DIM=D,
    )  # fmt: skip
    return out
