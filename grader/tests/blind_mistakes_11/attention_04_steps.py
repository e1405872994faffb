# gpu-programming/triton-kernels/attention.py | error | p, which is fp32, meets v in its own dtype in the second product (`tl.dot(p, v, acc, ...)` in step); must be p.to(v.dtype), as both operands need one dtype. Shows in fp16 and bf16: the kernel does not compile. fp32 is right.
"""Causal attention: keys below the tile without a mask, then the tile's own keys with one."""

import math

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"BLOCK_M": 128, "BLOCK_N": 64}, num_stages=3, num_warps=8),
    triton.Config({"BLOCK_M": 64, "BLOCK_N": 32}, num_stages=3, num_warps=4),
    triton.Config({"BLOCK_M": 32, "BLOCK_N": 32}, num_stages=2, num_warps=4),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: tiles no longer than the sequence, and the last one alone for fp32."""
    longest = 0 if named_args["q_ptr"].dtype == torch.float32 else named_args["length"]
    return [config for config in configs if config.kwargs["BLOCK_M"] <= longest] or configs[-1:]


@triton.jit
def step(state_acc, state_m, state_d, scores, v):
    """The online softmax with one more block: scores are to the base 2."""
    peak = tl.maximum(state_m, tl.max(scores, axis=1))
    shrink = tl.exp2(state_m - peak)
    p = tl.exp2(scores - peak[:, None])
    acc = state_acc * shrink[:, None]
    acc = tl.dot(p, v, acc, input_precision="ieee")
    return acc, peak, state_d * shrink + tl.sum(p, axis=1)


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, heads, length, scale,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_om,
    DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    first = tl.program_id(0) * BLOCK_M
    batch = (tl.program_id(1) // heads).to(tl.int64)
    head = (tl.program_id(1) % heads).to(tl.int64)
    q_ptr += batch * stride_qb + head * stride_qh
    k_ptr += batch * stride_kb + head * stride_kh
    v_ptr += batch * stride_vb + head * stride_vh
    out_ptr += batch * stride_ob + head * stride_oh
    queries = first + tl.arange(0, BLOCK_M)
    lanes = tl.arange(0, BLOCK_N)
    dims = tl.arange(0, DIM)
    live = queries[:, None] < length
    q = tl.load(q_ptr + queries.to(tl.int64)[:, None] * stride_qm + dims[None, :], mask=live, other=0.0)
    m = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)
    for start in range(0, first, BLOCK_N):
        keys = (start + lanes).to(tl.int64)
        k = tl.load(k_ptr + keys[None, :] * stride_kn + dims[:, None])
        v = tl.load(v_ptr + keys[:, None] * stride_vn + dims[None, :])
        scores = tl.dot(q, k, input_precision="ieee") * scale
        acc, m, d = step(acc, m, d, scores, v)
    for start in tl.range(first, tl.minimum(first + BLOCK_M, length), BLOCK_N, num_stages=1):
        keys = (start + lanes).to(tl.int64)
        k = tl.load(k_ptr + keys[None, :] * stride_kn + dims[:, None], mask=keys[None, :] < length, other=0.0)
        v = tl.load(v_ptr + keys[:, None] * stride_vn + dims[None, :], mask=keys[:, None] < length, other=0.0)
        scores = tl.dot(q, k, input_precision="ieee") * scale
        scores = tl.where(queries[:, None] >= keys[None, :], scores, -float("inf"))
        acc, m, d = step(acc, m, d, scores, v)
    out_ptrs = out_ptr + queries.to(tl.int64)[:, None] * stride_om + dims[None, :]
    tl.store(out_ptrs, (acc / d[:, None]).to(out_ptr.dtype.element_ty), mask=live)


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    out = q.new_empty(q.shape) if out is None else out
    batch, heads, length, dim = q.shape

    def grid(meta):
        return (triton.cdiv(length, meta["BLOCK_M"]), batch * heads)

    strides = [t.stride(axis) for t in (q, k, v, out) for axis in range(3)]
    attention_kernel[grid](q, k, v, out, heads, length, 1.4426950408889634 / math.sqrt(dim), *strides, DIM=dim)
    return out
