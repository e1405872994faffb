# gpu-programming/triton-kernels/attention.py | right | right
"""Causal attention, autotuned: the diagonal first, where every query sees a key, then all keys before it."""

import math

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, num_stages, num_warps):
    """One candidate: queries of a program and keys of a step, powers of two, pipeline depth and warps."""
    return triton.Config({"BLOCK_M": block_m, "BLOCK_N": block_n}, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 128, 2, 8),
    _config(128, 64, 3, 8),
    _config(128, 64, 4, 8),
    _config(64, 64, 3, 4),
    _config(32, 32, 2, 4),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: tiles no longer than the sequence, and the last one alone for fp32."""
    if named_args["q_ptr"].dtype == torch.float32:
        return configs[-1:]
    length = named_args["length"]
    return [config for config in configs if config.kwargs["BLOCK_M"] <= length] or configs[-1:]


@triton.jit
def fold(acc, m, d, q, k_ptrs, v_ptrs, offs_m, keys, length, scale, DIAGONAL: tl.constexpr):
    """acc, m and d with one more block of keys; k_ptrs is (DIM, BLOCK_N), v_ptrs is (BLOCK_N, DIM)."""
    if DIAGONAL:
        exists = keys < length
        k = tl.load(k_ptrs, mask=exists[None, :], other=0.0)
    else:
        k = tl.load(k_ptrs)
    logits = tl.dot(q, k, input_precision="ieee") * scale
    if DIAGONAL:
        logits = tl.where(offs_m[:, None] >= keys[None, :], logits, -float("inf"))
    peak = tl.maximum(m, tl.max(logits, axis=1))
    p = tl.exp2(logits - peak[:, None])
    fade = tl.exp2(m - peak)
    if DIAGONAL:
        v = tl.load(v_ptrs, mask=exists[:, None], other=0.0)
    else:
        v = tl.load(v_ptrs)
    acc = tl.dot(p.to(v.dtype), v, acc * fade[:, None], input_precision="ieee")
    return acc, peak, d * fade + tl.sum(p, axis=1)


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, heads, length, scale,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_om,
    DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """out[i, :] = sum over j <= i of softmax(q k^T)[i, j] v[j, :]; a program owns BLOCK_M rows of one head.

    scale is log2(e) / sqrt(DIM). BLOCK_N divides BLOCK_M.
    """
    tiles = tl.cdiv(length, BLOCK_M)
    pid = tl.program_id(axis=0)
    plane = pid // tiles
    batch, head = (plane // heads).to(tl.int64), (plane % heads).to(tl.int64)
    first = (tiles - 1 - pid % tiles) * BLOCK_M  # the rows with the most keys first
    offs_m = first + tl.arange(0, BLOCK_M)
    lanes, steps = tl.arange(0, DIM), tl.arange(0, BLOCK_N)

    q_rows = q_ptr + batch * stride_qb + head * stride_qh + offs_m.to(tl.int64)[:, None] * stride_qm
    q = tl.load(q_rows + lanes[None, :], mask=offs_m[:, None] < length, other=0.0)
    k_block = lanes[:, None] + steps[None, :] * stride_kn
    v_block = steps[:, None] * stride_vn + lanes[None, :]
    k_far = k_ptr + batch * stride_kb + head * stride_kh
    v_far = v_ptr + batch * stride_vb + head * stride_vh
    k_near = k_far + first.to(tl.int64) * stride_kn
    v_near = v_far + first.to(tl.int64) * stride_vn

    m = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)
    # From the first query's own key on: each query of the tile sees that one, so m is a number after one step.
    for start in tl.range(first, tl.minimum(first + BLOCK_M, length), BLOCK_N, num_stages=1):
        acc, m, d = fold(
            acc, m, d, q, k_near + k_block, v_near + v_block, offs_m, start + steps, length, scale, True
        )
        k_near += BLOCK_N * stride_kn
        v_near += BLOCK_N * stride_vn
    for start in range(0, first, BLOCK_N):
        acc, m, d = fold(
            acc, m, d, q, k_far + k_block, v_far + v_block, offs_m, start + steps, length, scale, False
        )
        k_far += BLOCK_N * stride_kn
        v_far += BLOCK_N * stride_vn

    out_rows = out_ptr + batch * stride_ob + head * stride_oh + offs_m.to(tl.int64)[:, None] * stride_om
    result = acc / d[:, None]
    tl.store(out_rows + lanes[None, :], result.to(out_ptr.dtype.element_ty), mask=offs_m[:, None] < length)


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v for each head, where a query sees its own key and those before it."""
    batch, heads, length, dim = q.shape
    if out is None:
        out = torch.empty((batch, heads, length, dim), dtype=q.dtype, device=q.device)
    strides = [tensor.stride(axis) for tensor in (q, k, v, out) for axis in (0, 1, 2)]
    grid = lambda meta: (batch * heads * triton.cdiv(length, meta["BLOCK_M"]),)  # noqa: E731
    attention_kernel[grid](
        q, k, v, out, heads, length, math.log2(math.e) / math.sqrt(dim), *strides, DIM=dim
    )
    return out
