# gpu-programming/triton-kernels/attention.py | wrong everywhere | attention_kernel: p and the factor are tl.exp of scores that the host scaled by log2(e) / sqrt(dim), so the weights are too sharp (base e^1.44) for every query but the first; it should be tl.exp2, or a scale without log2(e).
"""Causal attention with an online softmax: one loop over the keys up to the diagonal."""

import math

import torch
import triton
import triton.language as tl

SHAPES = [(128, 64, 3, 8), (128, 32, 3, 8), (64, 64, 3, 4), (32, 32, 2, 4)]
CONFIGS = [
    triton.Config({"BLOCK_M": block_m, "BLOCK_N": block_n}, num_stages=stages, num_warps=warps)
    for block_m, block_n, stages, warps in SHAPES
]


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
    """A program owns BLOCK_M queries of one head; long tiles come first."""
    tiles = tl.cdiv(length, BLOCK_M)
    program = tl.program_id(axis=0)
    tile = tiles - 1 - program % tiles
    batch = (program // tiles // heads).to(tl.int64)
    head = (program // tiles % heads).to(tl.int64)
    q_ptr += batch * stride_qb + head * stride_qh
    k_ptr += batch * stride_kb + head * stride_kh
    v_ptr += batch * stride_vb + head * stride_vh
    out_ptr += batch * stride_ob + head * stride_oh

    queries = tile * BLOCK_M + tl.arange(0, BLOCK_M)
    dims = tl.arange(0, DIM)
    wide = queries.to(tl.int64)[:, None]
    q = tl.load(q_ptr + wide * stride_qm + dims[None, :], mask=wide < length, other=0.0)

    m = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)
    end = tl.minimum((tile + 1) * BLOCK_M, length)
    for start in range(0, end, BLOCK_N):
        keys = start + tl.arange(0, BLOCK_N)
        far = keys.to(tl.int64)
        k_t = tl.load(k_ptr + far[None, :] * stride_kn + dims[:, None], mask=far[None, :] < length, other=0.0)
        v = tl.load(v_ptr + far[:, None] * stride_vn + dims[None, :], mask=far[:, None] < length, other=0.0)
        scores = tl.dot(q, k_t, input_precision="ieee") * scale
        scores = tl.where(queries[:, None] >= keys[None, :], scores, -float("inf"))
        m_new = tl.maximum(m, tl.max(scores, axis=1))
        factor = tl.exp(m - m_new)
        p = tl.exp(scores - m_new[:, None])
        d = d * factor + tl.sum(p, axis=1)
        acc = tl.dot(p.to(v.dtype), v, acc * factor[:, None], input_precision="ieee")
        m = m_new

    result = acc / d[:, None]
    tl.store(out_ptr + wide * stride_om + dims[None, :], result.to(out_ptr.dtype.element_ty), mask=wide < length)


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v for each head, where a query sees its own key and those before it."""
    if out is None:
        out = torch.empty(q.shape, device=q.device, dtype=q.dtype)
    batch, heads, length, dim = q.shape
    scale = math.log2(math.e) / math.sqrt(dim)
    strides = [step for tensor in (q, k, v, out) for step in tensor.stride()[:3]]
    grid = lambda meta: (triton.cdiv(length, meta["BLOCK_M"]) * batch * heads,)
    attention_kernel[grid](q, k, v, out, heads, length, scale, *strides, DIM=dim)
    return out
