# gpu-programming/triton-kernels/attention.py | right | right
"""Causal attention, one loop over the keys with an online softmax."""

import math

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, num_stages, num_warps):
    return triton.Config({"BLOCK_M": block_m, "BLOCK_N": block_n}, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 64, 3, 8),
    _config(128, 64, 2, 8),
    _config(64, 64, 3, 4),
    _config(64, 32, 3, 4),
    _config(32, 32, 2, 4),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: tiles no longer than the sequence, and the last one alone for fp32."""
    longest = 0 if named_args["q_ptr"].dtype == torch.float32 else named_args["length"]
    return [config for config in configs if config.kwargs["BLOCK_M"] <= longest] or configs[-1:]


@triton.jit
def fold(acc, m, d, q, k, v, rows, keys, scale):
    """acc, m and d after one more block of keys."""
    s = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
    s = tl.where(keys[None, :] <= rows[:, None], s, -float("inf"))
    m_new = tl.maximum(m, tl.max(s, axis=1))
    shrink = tl.exp(m - m_new)
    p = tl.exp(s - m_new[:, None])
    d = d * shrink + tl.sum(p, axis=1)
    acc = tl.dot(p.to(v.dtype), v, acc * shrink[:, None], input_precision="ieee")
    return acc, m_new, d


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, heads, length, scale,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_om,
    DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(0)
    tiles = tl.cdiv(length, BLOCK_M)
    first = (tiles - 1 - pid % tiles) * BLOCK_M
    batch = (pid // tiles // heads).to(tl.int64)
    head = (pid // tiles % heads).to(tl.int64)

    rows = first + tl.arange(0, BLOCK_M)
    far_rows = rows.to(tl.int64)[:, None]
    dims = tl.arange(0, DIM)[None, :]
    row_ok = rows[:, None] < length

    q = tl.load(
        q_ptr + batch * stride_qb + head * stride_qh + far_rows * stride_qm + dims, mask=row_ok, other=0.0
    )
    k_base = k_ptr + batch * stride_kb + head * stride_kh + dims
    v_base = v_ptr + batch * stride_vb + head * stride_vh + dims

    m = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)
    for start in range(0, tl.minimum(first + BLOCK_M, length), BLOCK_N):
        keys = start + tl.arange(0, BLOCK_N)
        key_ok = keys[:, None] < length
        far_keys = keys.to(tl.int64)[:, None]
        k = tl.load(k_base + far_keys * stride_kn, mask=key_ok, other=0.0)
        v = tl.load(v_base + far_keys * stride_vn, mask=key_ok, other=0.0)
        acc, m, d = fold(acc, m, d, q, k, v, rows, keys, scale)

    result = (acc / d[:, None]).to(out_ptr.dtype.element_ty)
    tl.store(
        out_ptr + batch * stride_ob + head * stride_oh + far_rows * stride_om + dims, result, mask=row_ok
    )


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    batches, heads, length, dim = q.shape
    if out is None:
        out = torch.empty((batches, heads, length, dim), dtype=q.dtype, device=q.device)
    grid = lambda meta: (triton.cdiv(length, meta["BLOCK_M"]) * batches * heads,)  # noqa: E731
    attention_kernel[grid](
        q, k, v, out, heads, length, 1.0 / math.sqrt(dim),
        q.stride(0), q.stride(1), q.stride(2), k.stride(0), k.stride(1), k.stride(2),
        v.stride(0), v.stride(1), v.stride(2), out.stride(0), out.stride(1), out.stride(2),
        DIM=dim,
    )  # fmt: skip
    return out
