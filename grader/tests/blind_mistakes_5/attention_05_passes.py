# gpu-programming/triton-kernels/attention.py | corner | The maximum `m` starts at 0, not at -inf: where all visible scores of a row are far below 0, every exp2 underflows and 0 / 0 is NaN (slightly negative rows are right).
"""Causal attention in two passes over the keys: the first finds the maximum, the second adds."""

import math

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, num_stages, num_warps):
    return triton.Config({"BLOCK_M": block_m, "BLOCK_N": block_n}, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [_config(128, 64, 3, 8), _config(64, 64, 3, 4), _config(32, 16, 3, 4)]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: tiles no longer than the sequence, and the last one alone for fp32."""
    longest = 0 if named_args["q_ptr"].dtype == torch.float32 else named_args["length"]
    return [config for config in configs if config.kwargs["BLOCK_M"] <= longest] or configs[-1:]


@triton.jit
def scores_of(q, k_ptr, keys, cols, rows, length, stride_kn, scale):
    """The scores of one block of keys, -inf where a key is hidden."""
    k = tl.load(k_ptr + keys.to(tl.int64)[:, None] * stride_kn + cols[None, :], mask=keys[:, None] < length, other=0.0)
    s = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
    return tl.where(rows[:, None] >= keys[None, :], s, -float("inf"))


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, heads, length, scale,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_om,
    DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """out[i, :] = sum over j <= i of softmax(q k^T)[i, j] v[j, :]."""
    pid = tl.program_id(axis=0)
    tiles = tl.cdiv(length, BLOCK_M)
    batch_head = pid // tiles
    batch = (batch_head // heads).to(tl.int64)
    head = (batch_head % heads).to(tl.int64)
    start = (pid % tiles) * BLOCK_M
    rows = start + tl.arange(0, BLOCK_M)
    cols = tl.arange(0, DIM)
    ns = tl.arange(0, BLOCK_N)
    end = min(start + BLOCK_M, length)
    k_ptr += batch * stride_kb + head * stride_kh
    v_ptr += batch * stride_vb + head * stride_vh
    q_ptr += batch * stride_qb + head * stride_qh
    out_ptr += batch * stride_ob + head * stride_oh
    q = tl.load(q_ptr + rows.to(tl.int64)[:, None] * stride_qm + cols[None, :], mask=rows[:, None] < length, other=0.0)

    # pass 1: the maximum of each row
    m = tl.zeros((BLOCK_M,), dtype=tl.float32)
    for n in range(0, end, BLOCK_N):
        m = tl.maximum(m, tl.max(scores_of(q, k_ptr, n + ns, cols, rows, length, stride_kn, scale), axis=1))

    # pass 2: the sums, with the final maximum
    d = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)
    for n in range(0, end, BLOCK_N):
        keys = n + ns
        p = tl.exp2(scores_of(q, k_ptr, keys, cols, rows, length, stride_kn, scale) - m[:, None])
        d += tl.sum(p, axis=1)
        v = tl.load(v_ptr + keys.to(tl.int64)[:, None] * stride_vn + cols[None, :], mask=keys[:, None] < length, other=0.0)
        acc = tl.dot(p.to(v.dtype), v, acc, input_precision="ieee")
    acc /= d[:, None]
    out_ptrs = out_ptr + rows.to(tl.int64)[:, None] * stride_om + cols[None, :]
    tl.store(out_ptrs, acc.to(out_ptr.dtype.element_ty), mask=rows[:, None] < length)


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v for each head, where a query sees its own key and those before it."""
    batch, heads, length, dim = q.shape
    out = torch.empty((batch, heads, length, dim), device=q.device, dtype=q.dtype) if out is None else out
    grid = lambda meta: (triton.cdiv(length, meta["BLOCK_M"]) * batch * heads,)  # noqa: E731
    strides = (*q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *out.stride()[:3])
    attention_kernel[grid](q, k, v, out, heads, length, math.log2(math.e) / math.sqrt(dim), *strides, DIM=dim)
    return out
