# gpu-programming/triton-kernels/attention.py | contract | the function returns out.contiguous(): for an out that is given and not contiguous this is a copy, another tensor; it must return out itself; shows only with an out whose heads lie side by side or whose rows are padded, the numbers in out are right
"""Causal attention with scores that stand upright: keys are rows, queries are columns of a block."""

import math

import torch
import triton
import triton.language as tl

LOG2_E = math.log2(math.e)

CONFIGS = [
    triton.Config({"QUERIES": queries, "KEYS": keys}, num_stages=stages, num_warps=warps)
    for queries, keys, stages, warps in [(128, 64, 2, 8), (64, 64, 2, 4), (64, 32, 3, 4), (16, 16, 2, 1)]
]


def fitting(configs, named_args, **kwargs):
    """No tile longer than the sequence, the last one for fp32."""
    fp32 = named_args["q_ptr"].dtype == torch.float32
    kept = [c for c in configs if c.kwargs["QUERIES"] <= named_args["length"] and not fp32]
    return kept if kept else configs[-1:]


@triton.jit
def head_of(ptr, batch, head, stride_b, stride_h):
    return ptr + batch * stride_b + head * stride_h


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, heads, length, scale,
    qb, qh, qm, kb, kh, kn, vb, vh, vn, ob, oh, om,
    DIM: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    tiles = tl.cdiv(length, QUERIES)
    pid = tl.program_id(0)
    batch = (pid // (tiles * heads)).to(tl.int64)
    head = (pid // tiles % heads).to(tl.int64)
    begin = (pid % tiles) * QUERIES
    q_ptr = head_of(q_ptr, batch, head, qb, qh)
    k_ptr = head_of(k_ptr, batch, head, kb, kh)
    v_ptr = head_of(v_ptr, batch, head, vb, vh)
    o_ptr = head_of(o_ptr, batch, head, ob, oh)

    i = (begin + tl.arange(0, QUERIES)).to(tl.int64)
    x = tl.arange(0, DIM)
    # (DIM, QUERIES), so that k @ q has one column for each query
    q = tl.load(q_ptr + i[None, :] * qm + x[:, None], mask=(i < length)[None, :], other=0.0)

    top = tl.full((QUERIES,), -float("inf"), dtype=tl.float32)
    total = tl.zeros((QUERIES,), dtype=tl.float32)
    acc = tl.zeros((DIM, QUERIES), dtype=tl.float32)
    for n in range(0, tl.minimum(length, begin + QUERIES), KEYS):
        j = (n + tl.arange(0, KEYS)).to(tl.int64)
        k = tl.load(k_ptr + j[:, None] * kn + x[None, :], mask=(j < length)[:, None], other=0.0)
        v = tl.load(v_ptr + j[None, :] * vn + x[:, None], mask=(j < length)[None, :], other=0.0)
        s = tl.dot(k, q, input_precision="ieee") * scale
        s = tl.where(j[:, None] <= i[None, :], s, -float("inf"))
        new_top = tl.maximum(top, tl.max(s, axis=0))
        p = tl.exp2(s - new_top[None, :])
        shrink = tl.exp2(top - new_top)
        total = total * shrink + tl.sum(p, axis=0)
        acc = tl.dot(v, p.to(v.dtype), acc * shrink[None, :], input_precision="ieee")
        top = new_top

    tl.store(
        o_ptr + i[None, :] * om + x[:, None],
        (acc / total[None, :]).to(o_ptr.dtype.element_ty),
        mask=(i < length)[None, :],
    )


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v for each head, where a query sees its own key and those before it."""
    batch, heads, length, dim = q.shape
    if out is None:
        out = torch.empty((batch, heads, length, dim), dtype=q.dtype, device=q.device)
    strides = [tensor.stride(axis) for tensor in (q, k, v, out) for axis in range(3)]
    grid = lambda meta: (batch * heads * triton.cdiv(length, meta["QUERIES"]),)  # noqa: E731
    attention_kernel[grid](q, k, v, out, heads, length, LOG2_E / math.sqrt(dim), *strides, DIM=dim)
    return out.contiguous()
