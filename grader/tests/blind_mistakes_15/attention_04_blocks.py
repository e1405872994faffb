# gpu-programming/triton-kernels/attention.py | two mistakes | 1. scale is 1 / sqrt(dim) on the host, but the kernel uses exp2: the factor log2(e) is missing, and the weights are too flat. 2. In the loop over the diagonal v is loaded without a mask, so where the length is no multiple of BLOCK_N the weight 0 meets what lies past the end (0 * NaN); it needs mask keys < length, other 0.
import math

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"BLOCK_M": 128, "BLOCK_N": 64}, num_stages=3, num_warps=8),
    triton.Config({"BLOCK_M": 64, "BLOCK_N": 64}, num_stages=3, num_warps=4),
    triton.Config({"BLOCK_M": 64, "BLOCK_N": 32}, num_stages=3, num_warps=4),
]


def fitting(configs, named_args, **kwargs):
    longest = 0 if named_args["q_ptr"].dtype == torch.float32 else named_args["length"]
    return [c for c in configs if c.kwargs["BLOCK_M"] <= longest] or configs[-1:]


@triton.jit
def update(scores, m, d):
    """Weights of a block, the factor of what was before, and the new m and d."""
    new = tl.maximum(m, tl.max(scores, axis=1))
    p = tl.exp2(scores - new[:, None])
    factor = tl.exp2(m - new)
    return p, factor, new, d * factor + tl.sum(p, axis=1)


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, heads, length, scale,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_om,
    DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    tiles = tl.cdiv(length, BLOCK_M)
    pid = tl.program_id(axis=0)
    start = (tiles - 1 - pid % tiles) * BLOCK_M
    head = (pid // tiles % heads).to(tl.int64)
    batch = (pid // tiles // heads).to(tl.int64)

    rows = start + tl.arange(0, BLOCK_M).to(tl.int64)
    cols = tl.arange(0, DIM)
    block = tl.arange(0, BLOCK_N).to(tl.int64)
    q_base = q_ptr + batch * stride_qb + head * stride_qh
    q = tl.load(q_base + rows[:, None] * stride_qm + cols[None, :], mask=rows[:, None] < length, other=0.0)
    k_base = k_ptr + batch * stride_kb + head * stride_kh
    v_base = v_ptr + batch * stride_vb + head * stride_vh

    m = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)

    for n in range(0, start, BLOCK_N):
        keys = n + block
        k = tl.load(k_base + keys[:, None] * stride_kn + cols[None, :])
        v = tl.load(v_base + keys[:, None] * stride_vn + cols[None, :])
        scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        p, factor, m, d = update(scores, m, d)
        acc = tl.dot(p.to(v.dtype), v, acc * factor[:, None], input_precision="ieee")

    for n in tl.range(start, tl.minimum(start + BLOCK_M, length), BLOCK_N, num_stages=1):
        keys = n + block
        k = tl.load(k_base + keys[:, None] * stride_kn + cols[None, :], mask=keys[:, None] < length, other=0.0)
        v = tl.load(v_base + keys[:, None] * stride_vn + cols[None, :])
        scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        scores = tl.where(keys[None, :] <= rows[:, None], scores, -float("inf"))
        p, factor, m, d = update(scores, m, d)
        acc = tl.dot(p.to(v.dtype), v, acc * factor[:, None], input_precision="ieee")

    out_base = out_ptr + batch * stride_ob + head * stride_oh
    acc /= d[:, None]
    tl.store(
        out_base + rows[:, None] * stride_om + cols[None, :], acc.to(out_ptr.dtype.element_ty), mask=rows[:, None] < length
    )


def attention(q, k, v, *, out=None):
    """Causal attention, each head by itself."""
    batch, heads, length, dim = q.shape
    if out is None:
        out = torch.empty((batch, heads, length, dim), device=q.device, dtype=q.dtype)
    scale = 1.0 / math.sqrt(dim)
    grid = lambda meta: (batch * heads * triton.cdiv(length, meta["BLOCK_M"]),)  # noqa: E731
    sq, sk, sv, so = q.stride(), k.stride(), v.stride(), out.stride()
    attention_kernel[grid](
        q, k, v, out, heads, length, scale,
        sq[0], sq[1], sq[2], sk[0], sk[1], sk[2], sv[0], sv[1], sv[2], so[0], so[1], so[2], DIM=dim,
    )  # fmt: skip
    return out
