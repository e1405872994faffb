# gpu-programming/triton-kernels/attention.py | honest | everything is transposed (scores are keys x queries, acc is DIM x queries), the key blocks run from the diagonal back to key 0, with natural exponentials, so a query may see no key in its first block (guarded)
"""Causal attention over blocks of keys, from the diagonal backwards, all tiles transposed."""

import math

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, num_stages, num_warps):
    """One candidate: queries of a program and keys of a step, powers of two, pipeline depth and warps."""
    return triton.Config({"BLOCK_M": block_m, "BLOCK_N": block_n}, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [_config(128, 64, 3, 8), _config(64, 64, 3, 4), _config(64, 32, 3, 4), _config(32, 32, 2, 4)]


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
    head = tl.program_id(0) % heads
    batch = tl.program_id(0) // heads
    first = (tl.num_programs(1) - 1 - tl.program_id(1)) * BLOCK_M
    q_ptr += batch.to(tl.int64) * stride_qb + head.to(tl.int64) * stride_qh
    k_ptr += batch.to(tl.int64) * stride_kb + head.to(tl.int64) * stride_kh
    v_ptr += batch.to(tl.int64) * stride_vb + head.to(tl.int64) * stride_vh
    out_ptr += batch.to(tl.int64) * stride_ob + head.to(tl.int64) * stride_oh

    dims = tl.arange(0, DIM)
    queries = (first + tl.arange(0, BLOCK_M)).to(tl.int64)
    exists = queries < length
    q_t = tl.load(q_ptr + queries[None, :] * stride_qm + dims[:, None], mask=exists[None, :], other=0.0)

    end = tl.minimum(first + BLOCK_M, length)
    blocks = tl.cdiv(end, BLOCK_N)
    m = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((DIM, BLOCK_M), dtype=tl.float32)
    for back in range(0, blocks):
        keys = ((blocks - 1 - back) * BLOCK_N + tl.arange(0, BLOCK_N)).to(tl.int64)
        known = keys < length
        k = tl.load(k_ptr + keys[:, None] * stride_kn + dims[None, :], mask=known[:, None], other=0.0)
        v_t = tl.load(v_ptr + keys[None, :] * stride_vn + dims[:, None], mask=known[None, :], other=0.0)
        scores = scale * tl.dot(k, q_t, input_precision="ieee")
        scores = tl.where(keys[:, None] <= queries[None, :], scores, -float("inf"))
        m_new = tl.maximum(m, tl.max(scores, axis=0))
        # of the last block on the diagonal the first queries see no key: nothing to subtract yet
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        p = tl.exp(scores - shift[None, :])
        old = tl.exp(m - shift)
        d = d * old + tl.sum(p, axis=0)
        acc = tl.dot(v_t, p.to(v_t.dtype), acc * old[None, :], input_precision="ieee")
        m = m_new
    result = acc / d[None, :]
    tl.store(
        out_ptr + queries[None, :] * stride_om + dims[:, None],
        result.to(out_ptr.dtype.element_ty),
        mask=exists[None, :],
    )


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v for each head, where a query sees its own key and those before it."""
    out = torch.empty_like(q) if out is None else out
    batch, heads, length, dim = q.shape
    grid = lambda meta: (batch * heads, triton.cdiv(length, meta["BLOCK_M"]))  # noqa: E731
    attention_kernel[grid](
        q, k, v, out, heads, length, 1.0 / math.sqrt(dim),
        *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *out.stride()[:3], DIM=dim,
    )  # fmt: skip
    return out
