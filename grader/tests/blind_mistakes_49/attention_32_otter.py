# gpu-programming/triton-kernels/attention.py | wrong everywhere | In `attention_kernel`, the loop over the diagonal unpacks `acc, d, m = absorb(...)`, but `absorb` returns acc, m, d, as the first loop has it; it should be `acc, m, d = absorb(...)`. After the diagonal d holds the maximum (and where the diagonal has several blocks m and d change places at each), so `acc / d` divides by the wrong number. Shows in all cases, also for one key.
"""Causal attention, online: full blocks of keys first, then those at the diagonal, autotuned."""

import math

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, num_stages, num_warps):
    """One candidate; BLOCK_N divides BLOCK_M."""
    return triton.Config({"BLOCK_M": block_m, "BLOCK_N": block_n}, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [_config(128, 64, 3, 8), _config(128, 32, 4, 8), _config(64, 64, 3, 4), _config(64, 32, 2, 4)]


def fitting(configs, named_args, **kwargs):
    """Tiles no longer than the sequence; the last config alone for fp32, which has no tensor cores."""
    if named_args["q_ptr"].dtype == torch.float32:
        return configs[-1:]
    return [c for c in configs if c.kwargs["BLOCK_M"] <= named_args["length"]] or configs[-1:]


@triton.jit
def absorb(
    acc, m, d, q, k_head, v_head, stride_kn, stride_vn, keys, queries, dims, length, scale,
    EDGE: tl.constexpr,
):  # fmt: skip
    """acc, m and d with one more block of keys; at the EDGE keys may be hidden, or past the end."""
    positions = keys.to(tl.int64)
    k_ptrs = k_head + positions[None, :] * stride_kn + dims[:, None]
    v_ptrs = v_head + positions[:, None] * stride_vn + dims[None, :]
    if EDGE:
        k = tl.load(k_ptrs, mask=keys[None, :] < length, other=0.0)
        v = tl.load(v_ptrs, mask=keys[:, None] < length, other=0.0)
    else:
        k = tl.load(k_ptrs)
        v = tl.load(v_ptrs)
    scores = tl.dot(q, k, input_precision="ieee")
    if EDGE:
        scores = tl.where(queries[:, None] >= keys[None, :], scores, -float("inf"))
    m_new = tl.maximum(m, scale * tl.max(scores, axis=1))
    p = tl.exp2(scale * scores - m_new[:, None])
    shrink = tl.exp2(m - m_new)
    acc = tl.dot(p.to(v.dtype), v, acc * shrink[:, None], input_precision="ieee")
    d = d * shrink + tl.sum(p, axis=1)
    return acc, m_new, d


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, heads, length, scale,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_om,
    DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """A program owns BLOCK_M queries of one head; scale is log2(e) / sqrt(DIM)."""
    tiles = tl.cdiv(length, BLOCK_M)
    pid = tl.program_id(axis=0)
    first = (tiles - 1 - pid % tiles) * BLOCK_M
    batch = (pid // tiles // heads).to(tl.int64)
    head = (pid // tiles % heads).to(tl.int64)
    q_head = q_ptr + batch * stride_qb + head * stride_qh
    k_head = k_ptr + batch * stride_kb + head * stride_kh
    v_head = v_ptr + batch * stride_vb + head * stride_vh
    out_head = out_ptr + batch * stride_ob + head * stride_oh

    dims = tl.arange(0, DIM)
    lanes = tl.arange(0, BLOCK_N)
    queries = first + tl.arange(0, BLOCK_M)
    rows = queries.to(tl.int64)[:, None]
    exists = queries[:, None] < length
    q = tl.load(q_head + rows * stride_qm + dims[None, :], mask=exists, other=0.0)

    m = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)
    for start in range(0, first, BLOCK_N):
        acc, m, d = absorb(
            acc, m, d, q, k_head, v_head, stride_kn, stride_vn, start + lanes, queries, dims, length, scale,
            EDGE=False,
        )  # fmt: skip
    for start in tl.range(first, tl.minimum(first + BLOCK_M, length), BLOCK_N, num_stages=1):
        acc, d, m = absorb(
            acc, m, d, q, k_head, v_head, stride_kn, stride_vn, start + lanes, queries, dims, length, scale,
            EDGE=True,
        )  # fmt: skip

    result = (acc / d[:, None]).to(out_ptr.dtype.element_ty)
    tl.store(out_head + rows * stride_om + dims[None, :], result, mask=exists)


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v for each head, where a query sees its own key and those before it.

    q, k and v are (batch, heads, length, dim), bf16, fp16 or fp32, dim 16, 32, 64 or 128 and contiguous, any
    length from 1 on; the result goes to `out`, like q, where one is given.
    """
    batch, heads, length, dim = q.shape
    if out is None:
        out = torch.empty((batch, heads, length, dim), dtype=q.dtype, device=q.device)
    grid = lambda meta: (triton.cdiv(length, meta["BLOCK_M"]) * batch * heads,)  # noqa: E731
    attention_kernel[grid](
        q, k, v, out, heads, length, math.log2(math.e) / math.sqrt(dim),
        *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *out.stride()[:3], DIM=dim,
    )  # fmt: skip
    return out
