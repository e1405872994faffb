# gpu-programming/triton-kernels/attention.py | two mistakes | `scale = 1.0 / math.sqrt(dim)` lacks the factor log2(e) that `tl.exp2` needs, so the weights are too flat; it should be `math.log2(math.e) / math.sqrt(dim)`. The grid has `heads` programs for each tile and not `batch * heads`, so only the first batch is written; it should be `(tiles * batch * heads,)`.
"""Causal attention without the matrix of scores: online softmax over blocks of keys, autotuned."""

import math

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, num_stages, num_warps):
    """One candidate: queries of a program and keys of a step, powers of two, pipeline depth and warps."""
    return triton.Config({"BLOCK_M": block_m, "BLOCK_N": block_n}, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [_config(128, 64, 3, 8), _config(64, 64, 3, 4), _config(64, 32, 3, 4), _config(32, 32, 2, 4)]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: tiles no longer than the sequence, and the last one alone for fp32."""
    # Exact fp32 runs without tensor cores, where a large tile unrolls into thousands of instructions.
    longest = 0 if named_args["q_ptr"].dtype == torch.float32 else named_args["length"]
    return [config for config in configs if config.kwargs["BLOCK_M"] <= longest] or configs[-1:]


@triton.jit
def fold(acc, m, d, q, k_ptrs, v_ptrs, offs_m, keys, length, scale, DIAGONAL: tl.constexpr):
    """The sums acc of p * v and d of p with one more block of keys, p = exp2(scale * scores - m), and m."""
    if DIAGONAL:
        k = tl.load(k_ptrs, mask=keys[None, :] < length, other=0.0)
    else:
        k = tl.load(k_ptrs)
    s = scale * tl.dot(q, k, input_precision="ieee")
    if DIAGONAL:
        s = tl.where(keys[None, :] <= offs_m[:, None], s, -float("inf"))
    highest = tl.maximum(m, tl.max(s, axis=1))
    shrink = tl.exp2(m - highest)
    p = tl.exp2(s - highest[:, None])
    if DIAGONAL:
        v = tl.load(v_ptrs, mask=keys[:, None] < length, other=0.0)
    else:
        v = tl.load(v_ptrs)
    acc = tl.dot(p.to(v.dtype), v, acc * shrink[:, None], input_precision="ieee")
    return acc, highest, d * shrink + tl.sum(p, axis=1)


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, heads, length, scale,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_om,
    DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """out[i, :] = sum over j <= i of softmax(q k^T)[i, j] v[j, :]; a program owns BLOCK_M rows of one head."""
    # which tile of which head
    tiles = tl.cdiv(length, BLOCK_M)
    pid = tl.program_id(0)
    first = (tiles - 1 - pid % tiles) * BLOCK_M
    which = pid // tiles
    b = (which // heads).to(tl.int64)
    h = (which % heads).to(tl.int64)

    # move the pointers to that head
    q_ptr += b * stride_qb + h * stride_qh
    k_ptr += b * stride_kb + h * stride_kh
    v_ptr += b * stride_vb + h * stride_vh
    out_ptr += b * stride_ob + h * stride_oh

    cols = tl.arange(0, DIM)
    step = tl.arange(0, BLOCK_N)
    offs_m = first + tl.arange(0, BLOCK_M)
    rows = offs_m.to(tl.int64)
    inside = offs_m[:, None] < length
    q = tl.load(q_ptr + rows[:, None] * stride_qm + cols[None, :], mask=inside, other=0.0)

    m = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)

    # all keys before the tile
    for start in range(0, first, BLOCK_N):
        keys = start + step
        k_ptrs = k_ptr + keys.to(tl.int64)[None, :] * stride_kn + cols[:, None]
        v_ptrs = v_ptr + keys.to(tl.int64)[:, None] * stride_vn + cols[None, :]
        acc, m, d = fold(acc, m, d, q, k_ptrs, v_ptrs, offs_m, keys, length, scale, DIAGONAL=False)
    # the keys of the tile
    for start in tl.range(first, min(first + BLOCK_M, length), BLOCK_N, num_stages=1):
        keys = start + step
        k_ptrs = k_ptr + keys.to(tl.int64)[None, :] * stride_kn + cols[:, None]
        v_ptrs = v_ptr + keys.to(tl.int64)[:, None] * stride_vn + cols[None, :]
        acc, m, d = fold(acc, m, d, q, k_ptrs, v_ptrs, offs_m, keys, length, scale, DIAGONAL=True)

    result = (acc / d[:, None]).to(out_ptr.dtype.element_ty)
    tl.store(out_ptr + rows[:, None] * stride_om + cols[None, :], result, mask=inside)


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v for each head, where a query sees its own key and those before it.

    q, k and v are (batch, heads, length, dim), bf16, fp16 or fp32, dim 16, 32, 64 or 128 and contiguous, any
    length from 1 on; the result goes to `out`, like q, where one is given. After Dao, arXiv:2307.08691.
    """
    out = torch.empty_like(q, memory_format=torch.contiguous_format) if out is None else out
    heads, length, dim = q.shape[1:]
    scale = 1.0 / math.sqrt(dim)
    grid = lambda meta: (triton.cdiv(length, meta["BLOCK_M"]) * heads,)  # noqa: E731
    attention_kernel[grid](
        q, k, v, out, heads, length, scale,
        q.stride(0), q.stride(1), q.stride(2), k.stride(0), k.stride(1), k.stride(2),
        v.stride(0), v.stride(1), v.stride(2), out.stride(0), out.stride(1), out.stride(2), DIM=dim,
    )  # fmt: skip
    return out
