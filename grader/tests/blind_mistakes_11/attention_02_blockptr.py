# gpu-programming/triton-kernels/attention.py | corner | v is addressed with the strides of k (kv_base and `stride_kn` serve both block pointers, and the launch passes three strides for the two tensors); must be strides of v of its own. Shows where k and v have different layouts, such as heads side by side in one of them or other gaps between rows.
"""Causal attention with block pointers: one loop, every block checked."""

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
    """The configs worth a try: tiles no longer than the sequence, and the last one alone for fp32."""
    longest = 0 if named_args["q_ptr"].dtype == torch.float32 else named_args["length"]
    return [config for config in configs if config.kwargs["BLOCK_M"] <= longest] or configs[-1:]


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, heads, length, qk_scale,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn, stride_ob, stride_oh, stride_om,
    DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    tile = tl.program_id(0)
    group = tl.program_id(1)
    batch = (group // heads).to(tl.int64)
    head = (group % heads).to(tl.int64)
    start_m = tile * BLOCK_M
    q_block = tl.make_block_ptr(
        q_ptr + batch * stride_qb + head * stride_qh,
        shape=(length, DIM), strides=(stride_qm, 1), offsets=(start_m, 0), block_shape=(BLOCK_M, DIM), order=(1, 0),
    )  # fmt: skip
    kv_base = batch * stride_kb + head * stride_kh
    k_block = tl.make_block_ptr(
        k_ptr + kv_base,
        shape=(DIM, length), strides=(1, stride_kn), offsets=(0, 0), block_shape=(DIM, BLOCK_N), order=(0, 1),
    )  # fmt: skip
    v_block = tl.make_block_ptr(
        v_ptr + kv_base,
        shape=(length, DIM), strides=(stride_kn, 1), offsets=(0, 0), block_shape=(BLOCK_N, DIM), order=(1, 0),
    )  # fmt: skip
    out_block = tl.make_block_ptr(
        out_ptr + batch * stride_ob + head * stride_oh,
        shape=(length, DIM), strides=(stride_om, 1), offsets=(start_m, 0), block_shape=(BLOCK_M, DIM), order=(1, 0),
    )  # fmt: skip
    q = tl.load(q_block, boundary_check=(0,), padding_option="zero")
    queries = start_m + tl.arange(0, BLOCK_M)
    m = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)
    for start_n in range(0, tl.minimum(start_m + BLOCK_M, length), BLOCK_N):
        k = tl.load(k_block, boundary_check=(1,), padding_option="zero")
        v = tl.load(v_block, boundary_check=(0,), padding_option="zero")
        s = tl.dot(q, k, input_precision="ieee") * qk_scale
        visible = queries[:, None] >= (start_n + tl.arange(0, BLOCK_N))[None, :]
        s = tl.where(visible, s, -float("inf"))
        m_new = tl.maximum(m, tl.max(s, axis=1))
        alpha = tl.exp2(m - m_new)
        p = tl.exp2(s - m_new[:, None])
        d = d * alpha + tl.sum(p, axis=1)
        acc = acc * alpha[:, None]
        acc = tl.dot(p.to(v.dtype), v, acc, input_precision="ieee")
        m = m_new
        k_block = tl.advance(k_block, (0, BLOCK_N))
        v_block = tl.advance(v_block, (BLOCK_N, 0))
    tl.store(out_block, (acc / d[:, None]).to(out_ptr.dtype.element_ty), boundary_check=(0,))


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = q.new_empty(q.shape)
    batch, heads, length, dim = q.shape
    grid = lambda meta: (triton.cdiv(length, meta["BLOCK_M"]), batch * heads)
    attention_kernel[grid](
        q, k, v, out, heads, length, math.log2(math.e) / math.sqrt(dim),
        q.stride(0), q.stride(1), q.stride(2),
        k.stride(0), k.stride(1), k.stride(2),
        out.stride(0), out.stride(1), out.stride(2),
        DIM=dim,
    )  # fmt: skip
    return out
