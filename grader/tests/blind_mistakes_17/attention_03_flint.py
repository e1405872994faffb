# gpu-programming/triton-kernels/attention.py | corner | The last config of CONFIGS is (32, 64), where BLOCK_N does not divide BLOCK_M: the loop without mask, range(0, first, BLOCK_N), runs past first into keys that are in the future or past the end, and they are counted again at the diagonal. fp32 with length > 32 (and 16-bit calls where that config is chosen) is wrong, the rest is right; it should be (32, 32) or (64, 64).
"""Flash attention forward, causal: blocks before the tile without masks, then the blocks at the diagonal."""

import math

import torch
import triton
import triton.language as tl

LOG2E = 1.4426950408889634


def _config(block_m, block_n, num_stages, num_warps):
    return triton.Config({"BLOCK_M": block_m, "BLOCK_N": block_n}, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 128, 2, 8),
    _config(128, 64, 3, 8),
    _config(128, 64, 2, 8),
    _config(64, 64, 3, 4),
    _config(32, 64, 2, 4),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: tiles no longer than the sequence, and the last one alone for fp32."""
    longest = 0 if named_args["q_ptr"].dtype == torch.float32 else named_args["length"]
    return [config for config in configs if config.kwargs["BLOCK_M"] <= longest] or configs[-1:]


@triton.jit
def head_start(ptr, batch, head, stride_b, stride_h):
    return ptr + batch.to(tl.int64) * stride_b + head.to(tl.int64) * stride_h


@triton.jit
def fold(acc, m, d, q, k_ptrs, v_ptrs, offs_m, keys, length, scale, DIAGONAL: tl.constexpr):
    if DIAGONAL:
        k = tl.load(k_ptrs, mask=(keys < length)[None, :], other=0.0)
    else:
        k = tl.load(k_ptrs)
    s = tl.dot(q, k, input_precision="ieee") * scale
    if DIAGONAL:
        s = tl.where(keys[None, :] > offs_m[:, None], float("-inf"), s)
    top = tl.maximum(m, tl.max(s, 1))
    p = tl.math.exp2(s - top[:, None])
    alpha = tl.math.exp2(m - top)
    if DIAGONAL:
        v = tl.load(v_ptrs, mask=(keys < length)[:, None], other=0.0)
    else:
        v = tl.load(v_ptrs)
    acc = acc * alpha[:, None]
    acc = tl.dot(p.to(v.dtype), v, acc, input_precision="ieee")
    return acc, top, d * alpha + tl.sum(p, 1)


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
    head = (pid // tiles) % heads
    batch = (pid // tiles) // heads
    first = (tiles - 1 - pid % tiles) * BLOCK_M

    offs_m = first + tl.arange(0, BLOCK_M)
    dims = tl.arange(0, DIM)
    exists = (offs_m < length)[:, None]
    far_m = offs_m.to(tl.int64)[:, None]
    q_base = head_start(q_ptr, batch, head, stride_qb, stride_qh)
    k_base = head_start(k_ptr, batch, head, stride_kb, stride_kh)
    v_base = head_start(v_ptr, batch, head, stride_vb, stride_vh)
    o_base = head_start(out_ptr, batch, head, stride_ob, stride_oh)
    q = tl.load(q_base + far_m * stride_qm + dims[None, :], mask=exists, other=0.0)

    m = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)

    for start in tl.range(0, first, BLOCK_N):
        keys = start + tl.arange(0, BLOCK_N)
        k_ptrs = k_base + keys.to(tl.int64)[None, :] * stride_kn + dims[:, None]
        v_ptrs = v_base + keys.to(tl.int64)[:, None] * stride_vn + dims[None, :]
        acc, m, d = fold(acc, m, d, q, k_ptrs, v_ptrs, offs_m, keys, length, scale, False)

    end = tl.minimum(first + BLOCK_M, length)
    for start in tl.range(first, end, BLOCK_N, num_stages=1):
        keys = start + tl.arange(0, BLOCK_N)
        k_ptrs = k_base + keys.to(tl.int64)[None, :] * stride_kn + dims[:, None]
        v_ptrs = v_base + keys.to(tl.int64)[:, None] * stride_vn + dims[None, :]
        acc, m, d = fold(acc, m, d, q, k_ptrs, v_ptrs, offs_m, keys, length, scale, True)

    result = acc * (1.0 / d)[:, None]
    tl.store(o_base + far_m * stride_om + dims[None, :], result.to(out_ptr.dtype.element_ty), mask=exists)


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    n_batch, n_heads, length, dim = q.shape
    if out is None:
        out = torch.empty(q.shape, dtype=q.dtype, device=q.device)

    def grid(meta):
        return (n_batch * n_heads * triton.cdiv(length, meta["BLOCK_M"]),)

    attention_kernel[grid](
        q, k, v, out, n_heads, length, LOG2E / math.sqrt(dim),
        q.stride(0), q.stride(1), q.stride(2), k.stride(0), k.stride(1), k.stride(2),
        v.stride(0), v.stride(1), v.stride(2), out.stride(0), out.stride(1), out.stride(2),
        DIM=dim,
    )  # fmt: skip
    return out
