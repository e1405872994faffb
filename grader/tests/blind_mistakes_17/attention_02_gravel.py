# gpu-programming/triton-kernels/attention.py | wrong everywhere | In fold the old factor is applied after the product: acc = tl.dot(p, v, acc) * factor[:, None] also scales the products of the new block (by 0 for the first block, as m starts at -inf). It should be tl.dot(p, v, acc * factor[:, None]).
"""Causal attention with an online softmax over blocks of keys, autotuned."""

import math

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, num_stages, num_warps):
    return triton.Config({"BLOCK_M": block_m, "BLOCK_N": block_n}, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 128, 2, 8),
    _config(128, 64, 3, 8),
    _config(64, 64, 3, 4),
    _config(32, 32, 2, 4),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: tiles no longer than the sequence, and the last one alone for fp32."""
    longest = 0 if named_args["q_ptr"].dtype == torch.float32 else named_args["length"]
    return [config for config in configs if config.kwargs["BLOCK_M"] <= longest] or configs[-1:]


@triton.jit
def fold(acc, m, d, q, k_ptrs, v_ptrs, offs_m, keys, length, scale, DIAGONAL: tl.constexpr):
    if DIAGONAL:
        k = tl.load(k_ptrs, mask=keys[None, :] < length, other=0.0)
        v = tl.load(v_ptrs, mask=keys[:, None] < length, other=0.0)
    else:
        k = tl.load(k_ptrs)
        v = tl.load(v_ptrs)
    scores = tl.dot(q, k, input_precision="ieee")
    if DIAGONAL:
        scores = tl.where(offs_m[:, None] >= keys[None, :], scores, -float("inf"))
    m_new = tl.maximum(m, scale * tl.max(scores, axis=1))
    p = tl.exp2(scale * scores - m_new[:, None])
    factor = tl.exp2(m - m_new)
    d = d * factor + tl.sum(p, axis=1)
    acc = tl.dot(p.to(v.dtype), v, acc, input_precision="ieee") * factor[:, None]
    return acc, m_new, d


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, heads, length, scale,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_om,
    DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(axis=0)
    tiles = tl.cdiv(length, BLOCK_M)
    tile = tiles - 1 - pid % tiles
    which = pid // tiles
    batch = (which // heads).to(tl.int64)
    head = (which % heads).to(tl.int64)

    first = tile * BLOCK_M
    offs_m = first + tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    offs_d = tl.arange(0, DIM)
    positions = offs_m.to(tl.int64)[:, None]

    q_ptrs = q_ptr + batch * stride_qb + head * stride_qh + positions * stride_qm + offs_d[None, :]
    q = tl.load(q_ptrs, mask=offs_m[:, None] < length, other=0.0)
    k_head = k_ptr + batch * stride_kb + head * stride_kh + offs_d[:, None]
    v_head = v_ptr + batch * stride_vb + head * stride_vh + offs_d[None, :]

    m = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)
    for start in tl.range(0, first, BLOCK_N):
        keys = start + offs_n
        far = keys.to(tl.int64)
        acc, m, d = fold(
            acc, m, d, q, k_head + far[None, :] * stride_kn, v_head + far[:, None] * stride_vn,
            offs_m, keys, length, scale, DIAGONAL=False,
        )  # fmt: skip
    for start in tl.range(first, tl.minimum(first + BLOCK_M, length), BLOCK_N, num_stages=1):
        keys = start + offs_n
        far = keys.to(tl.int64)
        acc, m, d = fold(
            acc, m, d, q, k_head + far[None, :] * stride_kn, v_head + far[:, None] * stride_vn,
            offs_m, keys, length, scale, DIAGONAL=True,
        )  # fmt: skip

    acc = acc / d[:, None]
    out_ptrs = out_ptr + batch * stride_ob + head * stride_oh + positions * stride_om + offs_d[None, :]
    tl.store(out_ptrs, acc.to(out_ptr.dtype.element_ty), mask=offs_m[:, None] < length)


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    batch, heads, length, dim = q.shape
    if out is None:
        out = torch.empty((batch, heads, length, dim), dtype=q.dtype, device=q.device)
    scale = math.log2(math.e) / math.sqrt(dim)
    grid = lambda meta: (triton.cdiv(length, meta["BLOCK_M"]) * batch * heads,)  # noqa: E731
    attention_kernel[grid](
        q, k, v, out, heads, length, scale,
        *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *out.stride()[:3], DIM=dim,
    )  # fmt: skip
    return out
