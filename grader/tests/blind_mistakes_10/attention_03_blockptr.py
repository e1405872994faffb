# gpu-programming/triton-kernels/attention.py | two mistakes | (1) only acc is rescaled when the maximum rises; `d += tl.sum(p, axis=1)` must be d * factor + tl.sum(p, axis=1): shows where a query sees keys of more than one block (64 or 32). (2) the store of the result has no boundary_check; must have boundary_check=(0,): writes past the last position wherever the length is no multiple of BLOCK_M.
"""Causal attention with block pointers."""

import math

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"BLOCK_M": 128, "BLOCK_N": 64}, num_stages=3, num_warps=8),
    triton.Config({"BLOCK_M": 64, "BLOCK_N": 64}, num_stages=3, num_warps=4),
    triton.Config({"BLOCK_M": 32, "BLOCK_N": 32}, num_stages=2, num_warps=4),
]


def fitting(configs, named_args, **kwargs):
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
    tile = tl.program_id(1)
    b = (tl.program_id(0) // heads).to(tl.int64)
    h = (tl.program_id(0) % heads).to(tl.int64)
    first = tile * BLOCK_M
    q_block = tl.make_block_ptr(
        base=q_ptr + b * stride_qb + h * stride_qh,
        shape=(length, DIM), strides=(stride_qm, 1), offsets=(first, 0), block_shape=(BLOCK_M, DIM), order=(1, 0),
    )  # fmt: skip
    k_block = tl.make_block_ptr(
        base=k_ptr + b * stride_kb + h * stride_kh,
        shape=(DIM, length), strides=(1, stride_kn), offsets=(0, 0), block_shape=(DIM, BLOCK_N), order=(0, 1),
    )  # fmt: skip
    v_block = tl.make_block_ptr(
        base=v_ptr + b * stride_vb + h * stride_vh,
        shape=(length, DIM), strides=(stride_vn, 1), offsets=(0, 0), block_shape=(BLOCK_N, DIM), order=(1, 0),
    )  # fmt: skip
    out_block = tl.make_block_ptr(
        base=out_ptr + b * stride_ob + h * stride_oh,
        shape=(length, DIM), strides=(stride_om, 1), offsets=(first, 0), block_shape=(BLOCK_M, DIM), order=(1, 0),
    )  # fmt: skip
    q = tl.load(q_block, boundary_check=(0,), padding_option="zero")
    queries = first + tl.arange(0, BLOCK_M)
    m = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)
    for start in range(0, first + BLOCK_M, BLOCK_N):
        k = tl.load(k_block, boundary_check=(1,), padding_option="zero")
        v = tl.load(v_block, boundary_check=(0,), padding_option="zero")
        keys = start + tl.arange(0, BLOCK_N)
        s = tl.dot(q, k, input_precision="ieee") * scale
        s = tl.where(queries[:, None] >= keys[None, :], s, -float("inf"))
        m_new = tl.maximum(m, tl.max(s, axis=1))
        factor = tl.exp2(m - m_new)
        p = tl.exp2(s - m_new[:, None])
        acc = acc * factor[:, None]
        acc = tl.dot(p.to(v.dtype), v, acc, input_precision="ieee")
        d += tl.sum(p, axis=1)
        m = m_new
        k_block = tl.advance(k_block, (0, BLOCK_N))
        v_block = tl.advance(v_block, (BLOCK_N, 0))
    tl.store(out_block, (acc / d[:, None]).to(out_ptr.dtype.element_ty))


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v, causal."""
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device) if out is None else out
    batch, heads, length, dim = q.shape
    attention_kernel[lambda meta: (batch * heads, triton.cdiv(length, meta["BLOCK_M"]))](
        q, k, v, out, heads, length, math.log2(math.e) / math.sqrt(dim),
        q.stride(0), q.stride(1), q.stride(2), k.stride(0), k.stride(1), k.stride(2),
        v.stride(0), v.stride(1), v.stride(2), out.stride(0), out.stride(1), out.stride(2),
        DIM=dim,
    )  # fmt: skip
    return out
