# gpu-programming/triton-kernels/attention.py | honest | Walks from the diagonal back to key 0, guards -inf - -inf (the same base as 06).
"""Causal attention; each tile starts at its diagonal and walks back to key 0."""

import math

import torch
import triton
import triton.language as tl

LOG2E = 1 / math.log(2)
CONFIGS = [
    triton.Config({"BLOCK": 128, "STEP": 64}, num_stages=3, num_warps=8),
    triton.Config({"BLOCK": 64, "STEP": 64}, num_stages=3, num_warps=4),
    triton.Config({"BLOCK": 32, "STEP": 16}, num_stages=2, num_warps=4),
]


def fitting(configs, named_args, **kwargs):
    longest = 0 if named_args["q"].dtype == torch.float32 else named_args["length"]
    return [config for config in configs if config.kwargs["BLOCK"] <= longest] or configs[-1:]


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def walk_back_kernel(
    q, k, v, o, heads, length, scale,
    q0, q1, q2, k0, k1, k2, v0, v1, v2, o0, o1, o2,
    DIM: tl.constexpr, BLOCK: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    """BLOCK queries; STEP keys at a time, from the last visible key down to the first."""
    h = (tl.program_id(0) % heads).to(tl.int64)
    b = (tl.program_id(0) // heads).to(tl.int64)
    tile = tl.num_programs(1) - 1 - tl.program_id(1)
    x = tl.arange(0, DIM)[None, :]
    i = tile * BLOCK + tl.arange(0, BLOCK)
    iq = i.to(tl.int64)[:, None]
    query = tl.load(q + b * q0 + h * q1 + iq * q2 + x, mask=iq < length, other=0.0)
    k += b * k0 + h * k1
    v += b * v0 + h * v1

    j = tile * BLOCK + BLOCK - STEP + tl.arange(0, STEP)
    top = tl.full((BLOCK,), -float("inf"), tl.float32)
    weight = tl.zeros((BLOCK,), tl.float32)
    total = tl.zeros((BLOCK, DIM), tl.float32)
    # the keys of the diagonal: some queries see none of a block, so an exponent of -inf - -inf has to be avoided
    for _ in range(BLOCK // STEP):
        jk = j.to(tl.int64)[:, None]
        key = tl.load(k + jk * k2 + x, mask=jk < length, other=0.0)
        s = tl.dot(query, tl.trans(key), input_precision="ieee") * scale
        s = tl.where((i[:, None] >= j[None, :]) & (j[None, :] < length), s, -float("inf"))
        higher = tl.maximum(top, tl.max(s, 1))
        safe = tl.where(higher == -float("inf"), 0.0, higher)
        p = tl.exp2(s - safe[:, None])
        fade = tl.exp2(top - safe)
        weight = weight * fade + tl.sum(p, 1)
        value = tl.load(v + jk * v2 + x, mask=jk < length, other=0.0)
        total = tl.dot(p.to(value.dtype), value, total * fade[:, None], input_precision="ieee")
        top = higher
        j -= STEP
    # all the keys before: every query sees them
    for _ in range(tile * (BLOCK // STEP)):
        jk = j.to(tl.int64)[:, None]
        key = tl.load(k + jk * k2 + x)
        s = tl.dot(query, tl.trans(key), input_precision="ieee") * scale
        higher = tl.maximum(top, tl.max(s, 1))
        p = tl.exp2(s - higher[:, None])
        fade = tl.exp2(top - higher)
        weight = weight * fade + tl.sum(p, 1)
        value = tl.load(v + jk * v2 + x)
        total = tl.dot(p.to(value.dtype), value, total * fade[:, None], input_precision="ieee")
        top = higher
        j -= STEP
    weight = tl.where(i < length, weight, 1.0)
    result = total / weight[:, None]
    tl.store(o + b * o0 + h * o1 + iq * o2 + x, result.to(o.dtype.element_ty), mask=iq < length)


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v, causal."""
    B, H, T, D = q.shape
    o = q.new_empty((B, H, T, D)) if out is None else out
    walk_back_kernel[lambda c: (B * H, triton.cdiv(T, c["BLOCK"]))](
        q, k, v, o, H, T, LOG2E / math.sqrt(D),
        q.stride(0), q.stride(1), q.stride(2), k.stride(0), k.stride(1), k.stride(2),
        v.stride(0), v.stride(1), v.stride(2), o.stride(0), o.stride(1), o.stride(2), DIM=D,
    )  # fmt: skip
    return o
