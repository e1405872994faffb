# gpu-programming/triton-kernels/attention.py | two mistakes | (1) d is not brought to the new maximum (`d += tl.sum(p, axis=1)`), while acc is; must be d * alpha + the row sums. Shows for sequences of more than one block of keys. (2) the load of q has no mask (`tl.load(q_rows)`); must be masked with positions < length. Shows where length is no multiple of BLOCK_M: rows past the end are read, though they are not stored.
"""Flash attention, causal, forward only. One kernel, one loop over the keys a tile of queries may see."""

import math

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"BLOCK_M": m, "BLOCK_N": n}, num_stages=s, num_warps=w)
    for m, n, s, w in ((128, 128, 2, 8), (128, 64, 3, 8), (64, 64, 3, 4), (32, 32, 2, 4))
]


def fitting(configs, named_args, **kwargs):
    """Tiles no longer than the sequence, and the small one alone for fp32."""
    if named_args["q_ptr"].dtype == torch.float32:
        return configs[-1:]
    return [c for c in configs if c.kwargs["BLOCK_M"] <= named_args["length"]] or configs[-1:]


@triton.jit
def rows_of(ptr, batch, head, positions, stride_b, stride_h, stride_n, DIM: tl.constexpr):
    """Pointers to rows of one head, (positions, DIM)."""
    base = ptr + batch * stride_b + head * stride_h
    return base + positions.to(tl.int64)[:, None] * stride_n + tl.arange(0, DIM)[None, :]


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, heads, length, scale,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_om,
    DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    tiles = tl.cdiv(length, BLOCK_M)
    pid = tl.program_id(0)
    tile = tiles - 1 - pid % tiles
    batch = (pid // (tiles * heads)).to(tl.int64)
    head = ((pid // tiles) % heads).to(tl.int64)
    positions = tile * BLOCK_M + tl.arange(0, BLOCK_M)
    q_rows = rows_of(q_ptr, batch, head, positions, stride_qb, stride_qh, stride_qm, DIM)
    q = tl.load(q_rows)
    m = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)
    end = tl.minimum((tile + 1) * BLOCK_M, length)
    for start in range(0, end, BLOCK_N):
        keys = start + tl.arange(0, BLOCK_N)
        exists = keys[:, None] < length
        k = tl.load(rows_of(k_ptr, batch, head, keys, stride_kb, stride_kh, stride_kn, DIM), mask=exists, other=0.0)
        v = tl.load(rows_of(v_ptr, batch, head, keys, stride_vb, stride_vh, stride_vn, DIM), mask=exists, other=0.0)
        scores = tl.dot(q, tl.trans(k), input_precision="ieee")
        scores = tl.where(positions[:, None] >= keys[None, :], scores, -float("inf"))
        m_new = tl.maximum(m, scale * tl.max(scores, axis=1))
        alpha = tl.exp2(m - m_new)
        p = tl.exp2(scale * scores - m_new[:, None])
        acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None], input_precision="ieee")
        d += tl.sum(p, axis=1)
        m = m_new
    out_rows = rows_of(out_ptr, batch, head, positions, stride_ob, stride_oh, stride_om, DIM)
    result = (acc / d[:, None]).to(out_ptr.dtype.element_ty)
    tl.store(out_rows, result, mask=positions[:, None] < length)


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    batch, heads, length, dim = q.shape
    strides = [t.stride(axis) for t in (q, k, v, out) for axis in range(3)]
    attention_kernel[lambda meta: (triton.cdiv(length, meta["BLOCK_M"]) * batch * heads,)](
        q, k, v, out, heads, length, math.log2(math.e) / math.sqrt(dim), *strides, DIM=dim
    )
    return out
