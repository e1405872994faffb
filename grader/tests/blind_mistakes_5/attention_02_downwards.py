# gpu-programming/triton-kernels/attention.py | wrong everywhere | The causal mask of the transposed scores is reversed: `query <= key` keeps the keys at and after the query; it must be `key <= query`.
"""Causal attention with transposed scores: keys go down, queries go across."""

import math

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"QS": 128, "KS": 64}, num_stages=3, num_warps=8),
    triton.Config({"QS": 64, "KS": 64}, num_stages=3, num_warps=4),
    triton.Config({"QS": 32, "KS": 32}, num_stages=2, num_warps=4),
]


def fitting(configs, named_args, **kwargs):
    longest = 0 if named_args["q_ptr"].dtype == torch.float32 else named_args["length"]
    return [config for config in configs if config.kwargs["QS"] <= longest] or configs[-1:]


@triton.jit
def base_of(ptr, batch, head, stride_b, stride_h):
    return ptr + batch.to(tl.int64) * stride_b + head.to(tl.int64) * stride_h


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, heads, length, scale,
    qb, qh, qs, kb, kh, ks, vb, vh, vs, ob, oh, os,
    DIM: tl.constexpr, QS: tl.constexpr, KS: tl.constexpr,
):  # fmt: skip
    """acc is (DIM, QS): the transpose of the result of QS queries."""
    batch, head = tl.program_id(1) // heads, tl.program_id(1) % heads
    first = (tl.num_programs(0) - 1 - tl.program_id(0)) * QS
    last = min(first + QS, length)
    q_ptr = base_of(q_ptr, batch, head, qb, qh)
    k_ptr = base_of(k_ptr, batch, head, kb, kh)
    v_ptr = base_of(v_ptr, batch, head, vb, vh)
    out_ptr = base_of(out_ptr, batch, head, ob, oh)
    query = (first + tl.arange(0, QS)).to(tl.int64)
    dim = tl.arange(0, DIM)
    q_t = tl.load(q_ptr + query[None, :] * qs + dim[:, None], mask=query[None, :] < length, other=0.0)

    highest = tl.full((QS,), -float("inf"), dtype=tl.float32)
    norm = tl.zeros((QS,), dtype=tl.float32)
    acc = tl.zeros((DIM, QS), dtype=tl.float32)
    for start in range(0, last, KS):
        key = (start + tl.arange(0, KS)).to(tl.int64)
        k = tl.load(k_ptr + key[:, None] * ks + dim[None, :], mask=key[:, None] < length, other=0.0)
        v_t = tl.load(v_ptr + key[None, :] * vs + dim[:, None], mask=key[None, :] < length, other=0.0)
        scores = scale * tl.dot(k, q_t, input_precision="ieee")
        if start + KS > first:
            scores = tl.where(query[None, :] <= key[:, None], scores, -float("inf"))
        new = tl.maximum(highest, tl.max(scores, axis=0))
        p = tl.exp2(scores - new[None, :])
        ratio = tl.exp2(highest - new)
        norm = norm * ratio + tl.sum(p, axis=0)
        acc = tl.dot(v_t, p.to(v_t.dtype), acc * ratio[None, :], input_precision="ieee")
        highest = new
    acc = acc / norm[None, :]
    here = out_ptr + query[None, :] * os + dim[:, None]
    tl.store(here, acc.to(out_ptr.dtype.element_ty), mask=query[None, :] < length)


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v for each head, where a query sees its own key and those before it."""
    batch, heads, length, dim = q.shape
    out = torch.empty(batch, heads, length, dim, dtype=q.dtype, device=q.device) if out is None else out
    strides = []
    for t in (q, k, v, out):
        strides += [t.stride(0), t.stride(1), t.stride(2)]
    grid = lambda meta: (triton.cdiv(length, meta["QS"]), batch * heads)  # noqa: E731
    attention_kernel[grid](q, k, v, out, heads, length, math.log2(math.e) / dim**0.5, *strides, DIM=dim)
    return out
