# gpu-programming/triton-kernels/attention.py | right | one loop that goes from the tile's own keys down to key 0, so that a block may hide all keys of a query before it has seen one (the shift is 0 then); exp to the base e; a mask in every block.
"""Causal attention, from the newest visible keys down to the oldest."""

import math

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"BLOCK_M": 128, "BLOCK_N": 64}, num_stages=2, num_warps=8),
    triton.Config({"BLOCK_M": 64, "BLOCK_N": 64}, num_stages=2, num_warps=4),
    triton.Config({"BLOCK_M": 64, "BLOCK_N": 32}, num_stages=3, num_warps=4),
    triton.Config({"BLOCK_M": 32, "BLOCK_N": 32}, num_stages=2, num_warps=4),
]


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
    tiles = tl.cdiv(length, BLOCK_M)
    pid = tl.program_id(0)
    first = (tiles - 1 - pid % tiles) * BLOCK_M
    batch = (pid // tiles // heads).to(tl.int64)
    head = (pid // tiles % heads).to(tl.int64)
    dims = tl.arange(0, DIM)
    queries = (first + tl.arange(0, BLOCK_M)).to(tl.int64)
    q_ptrs = q_ptr + batch * stride_qb + head * stride_qh + queries[:, None] * stride_qm + dims[None, :]
    q = tl.load(q_ptrs, mask=queries[:, None] < length, other=0.0)
    k_base = k_ptr + batch * stride_kb + head * stride_kh
    v_base = v_ptr + batch * stride_vb + head * stride_vh
    m = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)
    blocks = tl.cdiv(tl.minimum(first + BLOCK_M, length), BLOCK_N)
    for i in range(blocks):
        keys = ((blocks - 1 - i) * BLOCK_N + tl.arange(0, BLOCK_N)).to(tl.int64)
        k = tl.load(k_base + keys[None, :] * stride_kn + dims[:, None], mask=keys[None, :] < length, other=0.0)
        scores = tl.dot(q, k, input_precision="ieee") * scale
        scores = tl.where(queries[:, None] >= keys[None, :], scores, -float("inf"))
        m_new = tl.maximum(m, tl.max(scores, axis=1))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        p = tl.exp(scores - shift[:, None])
        factor = tl.exp(m - shift)
        v = tl.load(v_base + keys[:, None] * stride_vn + dims[None, :], mask=keys[:, None] < length, other=0.0)
        acc = tl.dot(p.to(v.dtype), v, acc * factor[:, None], input_precision="ieee")
        d = d * factor + tl.sum(p, axis=1)
        m = m_new
    out_ptrs = out_ptr + batch * stride_ob + head * stride_oh + queries[:, None] * stride_om + dims[None, :]
    tl.store(out_ptrs, (acc / d[:, None]).to(out_ptr.dtype.element_ty), mask=queries[:, None] < length)


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    out = q.new_empty(q.shape) if out is None else out
    batch, heads, length, dim = q.shape
    grid = lambda meta: (batch * heads * triton.cdiv(length, meta["BLOCK_M"]),)
    strides = [t.stride(axis) for t in (q, k, v, out) for axis in range(3)]
    attention_kernel[grid](q, k, v, out, heads, length, 1.0 / math.sqrt(dim), *strides, DIM=dim)
    return out
