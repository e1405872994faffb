# gpu-programming/triton-kernels/attention.py | corner | `HIDDEN = tl.constexpr(-1.0e4)` stands for -inf in `tl.where(seen, scores, HIDDEN)` of `update`; it should be -inf. Right for ordinary scores; where the scores of visible keys (after 1 / sqrt(dim)) are below about -1e4, hidden keys become the maximum and get all the weight, so that later values are seen or values past the end (0) are averaged.
"""Causal attention in two phases: keys that all queries of a tile see, then those around the diagonal."""

import math

import torch
import triton
import triton.language as tl

HIDDEN = tl.constexpr(-1.0e4)  # the score of a key that a query does not see; exp of it is 0

CONFIGS = [
    triton.Config({"BLOCK_M": 128, "BLOCK_N": 64}, num_stages=3, num_warps=8),
    triton.Config({"BLOCK_M": 64, "BLOCK_N": 64}, num_stages=3, num_warps=4),
    triton.Config({"BLOCK_M": 64, "BLOCK_N": 32}, num_stages=3, num_warps=4),
    triton.Config({"BLOCK_M": 32, "BLOCK_N": 32}, num_stages=2, num_warps=4),
]


def fitting(configs, named_args, **kwargs):
    """Tiles no longer than the sequence; fp32, which has no tensor cores, takes the smallest."""
    if named_args["q_ptr"].dtype == torch.float32:
        return configs[-1:]
    return [one for one in configs if one.kwargs["BLOCK_M"] <= named_args["length"]] or configs[-1:]


@triton.jit
def head_of(ptr, batch, head, stride_b, stride_h):
    return ptr + batch.to(tl.int64) * stride_b + head.to(tl.int64) * stride_h


@triton.jit
def update(state, q, k, v, scale, seen, MASKED: tl.constexpr):
    """acc, m and d after one more block of keys; k comes transposed, (DIM, BLOCK_N)."""
    acc, m, d = state
    scores = tl.dot(q, k, input_precision="ieee") * scale
    if MASKED:
        scores = tl.where(seen, scores, HIDDEN)
    m_new = tl.maximum(m, tl.max(scores, axis=1))
    p = tl.exp(scores - m_new[:, None])
    factor = tl.exp(m - m_new)
    d = d * factor + tl.sum(p, axis=1)
    acc = tl.dot(p.to(v.dtype), v, acc * factor[:, None], input_precision="ieee")
    return acc, m_new, d


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, heads, length, scale,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_om,
    DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Neighbouring programs own the tiles of one head, the longest first, so that keys are shared in L2."""
    tiles = tl.cdiv(length, BLOCK_M)
    pid = tl.program_id(axis=0)
    first = (tiles - 1 - pid % tiles) * BLOCK_M
    batch, head = (pid // tiles) // heads, (pid // tiles) % heads
    q_base = head_of(q_ptr, batch, head, stride_qb, stride_qh)
    k_base = head_of(k_ptr, batch, head, stride_kb, stride_kh)
    v_base = head_of(v_ptr, batch, head, stride_vb, stride_vh)
    out_base = head_of(out_ptr, batch, head, stride_ob, stride_oh)

    dims, steps = tl.arange(0, DIM), tl.arange(0, BLOCK_N)
    queries = first + tl.arange(0, BLOCK_M)
    q_ptrs = q_base + queries[:, None].to(tl.int64) * stride_qm + dims[None, :]
    q = tl.load(q_ptrs, mask=queries[:, None] < length, other=0.0)

    m = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)

    for start in tl.range(0, first, BLOCK_N):
        keys = (start + steps).to(tl.int64)
        k = tl.load(k_base + keys[None, :] * stride_kn + dims[:, None])
        v = tl.load(v_base + keys[:, None] * stride_vn + dims[None, :])
        acc, m, d = update((acc, m, d), q, k, v, scale, None, MASKED=False)

    end = tl.minimum(first + BLOCK_M, length)
    for start in tl.range(first, end, BLOCK_N, num_stages=1):
        keys = start + steps
        wide = keys.to(tl.int64)
        k = tl.load(k_base + wide[None, :] * stride_kn + dims[:, None], mask=keys[None, :] < length, other=0.0)
        v = tl.load(v_base + wide[:, None] * stride_vn + dims[None, :], mask=keys[:, None] < length, other=0.0)
        seen = queries[:, None] >= keys[None, :]
        acc, m, d = update((acc, m, d), q, k, v, scale, seen, MASKED=True)

    out_ptrs = out_base + queries[:, None].to(tl.int64) * stride_om + dims[None, :]
    tl.store(out_ptrs, (acc / d[:, None]).to(out_ptr.dtype.element_ty), mask=queries[:, None] < length)


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v for each head, where a query sees its own key and those before it."""
    batch, heads, length, dim = q.shape
    if out is None:
        out = torch.empty((batch, heads, length, dim), dtype=q.dtype, device=q.device)

    def grid(meta):
        return (triton.cdiv(length, meta["BLOCK_M"]) * batch * heads,)

    attention_kernel[grid](
        q, k, v, out, heads, length, 1.0 / math.sqrt(dim),
        *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *out.stride()[:3],
        DIM=dim,
    )  # fmt: skip
    return out
