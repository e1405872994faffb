# gpu-programming/triton-kernels/attention.py | wrong everywhere | in attention, `scale = LOG2E * q.size(-2) ** -0.5` takes the length of the sequence, not dim: the scores are divided by sqrt(length) and not by sqrt(dim), so the weights are too flat where length > dim and too sharp where length < dim; right only for length == dim and for a length of 1 (and nearly right where length is near dim, or where in each row the largest scores are equal and all others far below). It should be q.size(-1)
"""Causal attention with an online softmax over blocks of keys, autotuned."""

import torch
import triton
import triton.language as tl

LOG2E = 1.4426950408889634

CONFIGS = [
    triton.Config({"BLOCK_M": queries, "BLOCK_N": keys}, num_stages=stages, num_warps=warps)
    for queries, keys, stages, warps in ((128, 128, 2, 8), (128, 64, 3, 8), (64, 64, 3, 4), (32, 32, 2, 4))
]


def fitting(configs, named_args, **kwargs):
    """Tiles no longer than the sequence; for fp32 the smallest one."""
    limit = 0 if named_args["q_ptr"].dtype == torch.float32 else named_args["length"]
    return [config for config in configs if config.kwargs["BLOCK_M"] <= limit] or configs[-1:]


@triton.jit
def absorb(acc, m, d, scores, v):
    """acc, m and d with one more block of keys, given its scores (in powers of two) and values."""
    m_new = tl.maximum(m, tl.max(scores, axis=1))
    p = tl.exp2(scores - m_new[:, None])
    alpha = tl.exp2(m - m_new)
    acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None], input_precision="ieee")
    return acc, m_new, d * alpha + tl.sum(p, axis=1)


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, heads, length, scale,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_om,
    DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """A program owns BLOCK_M queries of one head; BLOCK_N divides BLOCK_M."""
    pid = tl.program_id(axis=0)
    tiles = tl.cdiv(length, BLOCK_M)
    tile = tiles - 1 - pid % tiles  # the long rows begin
    batch = (pid // tiles // heads).to(tl.int64)
    head = (pid // tiles % heads).to(tl.int64)
    q_ptr += batch * stride_qb + head * stride_qh
    k_ptr += batch * stride_kb + head * stride_kh
    v_ptr += batch * stride_vb + head * stride_vh
    out_ptr += batch * stride_ob + head * stride_oh

    first = tile * BLOCK_M
    rows = first + tl.arange(0, BLOCK_M)
    far = rows.to(tl.int64)[:, None]
    exists = rows[:, None] < length
    keys = tl.arange(0, BLOCK_N)
    dims = tl.arange(0, DIM)
    q = tl.load(q_ptr + far * stride_qm + dims[None, :], mask=exists, other=0.0)
    k_ptrs = k_ptr + keys[None, :] * stride_kn + dims[:, None]  # already transposed: (DIM, BLOCK_N)
    v_ptrs = v_ptr + keys[:, None] * stride_vn + dims[None, :]

    m = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)

    for _ in range(0, first, BLOCK_N):
        scores = tl.dot(q, tl.load(k_ptrs), input_precision="ieee") * scale
        acc, m, d = absorb(acc, m, d, scores, tl.load(v_ptrs))
        k_ptrs += BLOCK_N * stride_kn
        v_ptrs += BLOCK_N * stride_vn

    for start in tl.range(first, tl.minimum(first + BLOCK_M, length), BLOCK_N, num_stages=1):
        position = start + keys
        k = tl.load(k_ptrs, mask=position[None, :] < length, other=0.0)
        v = tl.load(v_ptrs, mask=position[:, None] < length, other=0.0)
        scores = tl.dot(q, k, input_precision="ieee") * scale
        scores = tl.where(rows[:, None] >= position[None, :], scores, -float("inf"))
        acc, m, d = absorb(acc, m, d, scores, v)
        k_ptrs += BLOCK_N * stride_kn
        v_ptrs += BLOCK_N * stride_vn

    result = acc / d[:, None]
    tl.store(out_ptr + far * stride_om + dims[None, :], result.to(out_ptr.dtype.element_ty), mask=exists)


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Causal attention for q, k and v of shape (batch, heads, length, dim), the last dimension contiguous."""
    if out is None:
        out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    batch, heads, length, dim = q.shape
    scale = LOG2E * q.size(-2) ** -0.5

    attention_kernel[lambda meta: (triton.cdiv(length, meta["BLOCK_M"]) * batch * heads,)](
        q, k, v, out, heads, length, scale,
        *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *out.stride()[:3],
        DIM=dim,
    )  # fmt: skip
    return out
