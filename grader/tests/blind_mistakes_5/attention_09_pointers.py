# gpu-programming/triton-kernels/attention.py | honest | Block pointers, k loaded transposed (the same base as 04).
"""Causal attention with block pointers."""

import math

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"BM": bm, "BN": bn}, num_stages=stages, num_warps=warps)
    for bm, bn, stages, warps in ((128, 64, 3, 8), (64, 64, 3, 4), (32, 32, 2, 4))
]


def fitting(configs, named_args, **kwargs):
    """Tiles no longer than the sequence; the last one for fp32."""
    if named_args["q_ptr"].dtype == torch.float32:
        return configs[-1:]
    return [c for c in configs if c.kwargs["BM"] <= named_args["length"]] or configs[-1:]


@triton.jit
def step(acc, m, d, q, k, v, scale, hidden, MASK: tl.constexpr):
    """One more block of keys."""
    s = tl.dot(q, k, input_precision="ieee")
    if MASK:
        s = tl.where(hidden, float("-inf"), s)
    new = tl.maximum(m, tl.max(s, 1) * scale)
    p = tl.exp2(s * scale - new[:, None])
    old = tl.exp2(m - new)
    acc = tl.dot(p.to(v.dtype), v, acc * old[:, None], input_precision="ieee")
    return acc, new, d * old + tl.sum(p, 1)


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, heads, length, scale,
    q_b, q_h, q_m, k_b, k_h, k_n, v_b, v_h, v_n, o_b, o_h, o_m,
    DIM: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """BM queries of one head."""
    first = (tl.cdiv(length, BM) - 1 - tl.program_id(axis=0)) * BM
    head = (tl.program_id(axis=1) % heads).to(tl.int64)
    batch = (tl.program_id(axis=1) // heads).to(tl.int64)
    q_ptr += batch * q_b + head * q_h
    k_ptr += batch * k_b + head * k_h
    v_ptr += batch * v_b + head * v_h
    o_ptr += batch * o_b + head * o_h
    q_block = tl.make_block_ptr(q_ptr, (length, DIM), (q_m, 1), (first, 0), (BM, DIM), (1, 0))
    o_block = tl.make_block_ptr(o_ptr, (length, DIM), (o_m, 1), (first, 0), (BM, DIM), (1, 0))
    # the keys come transposed
    k_block = tl.make_block_ptr(k_ptr, (DIM, length), (1, k_n), (0, 0), (DIM, BN), (0, 1))
    v_block = tl.make_block_ptr(v_ptr, (length, DIM), (v_n, 1), (0, 0), (BN, DIM), (1, 0))
    q = tl.load(q_block, boundary_check=(0,), padding_option="zero")
    m = tl.full((BM,), float("-inf"), tl.float32)
    d = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, DIM), tl.float32)
    queries = first + tl.arange(0, BM)
    for n in range(0, first, BN):
        k = tl.load(k_block)
        v = tl.load(v_block)
        acc, m, d = step(acc, m, d, q, k, v, scale, False, False)
        k_block = tl.advance(k_block, (0, BN))
        v_block = tl.advance(v_block, (BN, 0))
    for n in tl.range(first, min(first + BM, length), BN, num_stages=1):
        k = tl.load(k_block, boundary_check=(1,), padding_option="zero")
        v = tl.load(v_block, boundary_check=(0,), padding_option="zero")
        hidden = queries[:, None] < (n + tl.arange(0, BN))[None, :]
        acc, m, d = step(acc, m, d, q, k, v, scale, hidden, True)
        k_block = tl.advance(k_block, (0, BN))
        v_block = tl.advance(v_block, (BN, 0))
    tl.store(o_block, (acc / d[:, None]).to(o_ptr.dtype.element_ty), boundary_check=(0,))


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v for each head, causal."""
    batch, heads, length, dim = q.shape
    out = q.new_empty((batch, heads, length, dim)) if out is None else out
    q_b, q_h, q_m, _ = q.stride()
    k_b, k_h, k_n, _ = k.stride()
    v_b, v_h, v_n, _ = v.stride()
    o_b, o_h, o_m, _ = out.stride()
    attention_kernel[lambda meta: (triton.cdiv(length, meta["BM"]), batch * heads)](
        q, k, v, out, heads, length, 1.4426950408889634 / math.sqrt(dim),
        q_b, q_h, q_m, k_b, k_h, k_n, v_b, v_h, v_n, o_b, o_h, o_m, DIM=dim,
    )  # fmt: skip
    return out
