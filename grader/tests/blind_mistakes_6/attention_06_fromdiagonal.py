# gpu-programming/triton-kernels/attention.py | honest | Right: begins with the block at the diagonal and walks back to key 0, exp2.
"""Causal attention; a program begins with its own keys at the diagonal and walks back to key 0."""

import math

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"SIDE": 128}, num_stages=2, num_warps=8),
    triton.Config({"SIDE": 64}, num_stages=3, num_warps=4),
    triton.Config({"SIDE": 16}, num_stages=2, num_warps=1),
]


def fitting(configs, named_args, **kwargs):
    """The sides not above the length, for fp32 the smallest."""
    if named_args["q_ptr"].dtype == torch.float32:
        return configs[-1:]
    return [c for c in configs if c.kwargs["SIDE"] <= named_args["length"]] or configs[-1:]


@triton.jit
def head_of(ptr, batch, head, stride_b, stride_h):
    """Where the matrix of one head begins."""
    return ptr + batch.to(tl.int64) * stride_b + head.to(tl.int64) * stride_h


@triton.jit
def load_rows(base, rows, stride, length, DIM: tl.constexpr):
    """Rows of a matrix with DIM columns, 0 where the sequence has ended."""
    ptrs = base + rows[:, None].to(tl.int64) * stride + tl.arange(0, DIM)[None, :]
    return tl.load(ptrs, mask=rows[:, None] < length, other=0.0)


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, length, scale,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_om,
    DIM: tl.constexpr, SIDE: tl.constexpr,
):  # fmt: skip
    """SIDE queries of one head, SIDE keys in a step."""
    tile, head, batch = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    k_base = head_of(k_ptr, batch, head, stride_kb, stride_kh)
    v_base = head_of(v_ptr, batch, head, stride_vb, stride_vh)
    queries = tile * SIDE + tl.arange(0, SIDE)
    q = load_rows(head_of(q_ptr, batch, head, stride_qb, stride_qh), queries, stride_qm, length, DIM)

    # The block at the diagonal. Every query sees its own key, so top is finite from here on.
    scores = tl.dot(q, load_rows(k_base, queries, stride_kn, length, DIM).T, input_precision="ieee") * scale
    scores = tl.where(queries[:, None] >= queries[None, :], scores, -float("inf"))
    top = tl.max(scores, axis=1)
    p = tl.exp2(scores - top[:, None])
    total = tl.sum(p, axis=1)
    v = load_rows(v_base, queries, stride_vn, length, DIM)
    acc = tl.dot(p.to(v.dtype), v, input_precision="ieee")

    for back in range(1, tile + 1):
        keys = (tile - back) * SIDE + tl.arange(0, SIDE)
        scores = tl.dot(q, load_rows(k_base, keys, stride_kn, length, DIM).T, input_precision="ieee") * scale
        higher = tl.maximum(top, tl.max(scores, axis=1))
        shrink = tl.exp2(top - higher)
        p = tl.exp2(scores - higher[:, None])
        total = total * shrink + tl.sum(p, axis=1)
        v = load_rows(v_base, keys, stride_vn, length, DIM)
        acc = tl.dot(p.to(v.dtype), v, acc * shrink[:, None], input_precision="ieee")
        top = higher

    out_base = head_of(out_ptr, batch, head, stride_ob, stride_oh)
    out_ptrs = out_base + queries[:, None].to(tl.int64) * stride_om + tl.arange(0, DIM)[None, :]
    tl.store(out_ptrs, (acc / total[:, None]).to(out_ptr.dtype.element_ty), mask=queries[:, None] < length)


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Causal attention of each head."""
    batch, heads, length, dim = q.shape
    if out is None:
        out = q.new_empty((batch, heads, length, dim))
    strides = [t.stride(axis) for t in (q, k, v, out) for axis in range(3)]
    scale = 1.4426950408889634 / math.sqrt(dim)
    attention_kernel[lambda meta: (triton.cdiv(length, meta["SIDE"]), heads, batch)](
        q, k, v, out, length, scale, *strides, DIM=dim
    )
    return out
