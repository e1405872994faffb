# gpu-programming/triton-kernels/attention.py | right | Walks the blocks of keys backwards, from the diagonal to the first key; in the blocks of the diagonal a shift of 0 stands in for a maximum of -inf, since a query may meet only hidden keys first. The pointers move by a negative step; the strides are passed as a list.
"""Causal attention by an online softmax that walks from a query's own key back to the first one, autotuned."""

import math

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, num_stages, num_warps):
    """One candidate: queries of a program and keys of a step, powers of two, pipeline depth and warps."""
    return triton.Config({"BLOCK_M": block_m, "BLOCK_N": block_n}, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [_config(128, 64, 3, 8), _config(64, 64, 3, 4), _config(64, 32, 3, 4), _config(32, 16, 2, 4)]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: tiles no longer than the sequence, and the last one alone for fp32."""
    longest = 0 if named_args["q_ptr"].dtype == torch.float32 else named_args["length"]
    return [config for config in configs if config.kwargs["BLOCK_M"] <= longest] or configs[-1:]


@triton.jit
def head_of(ptr, batch, head, stride_batch, stride_head):
    """Where a head of a sequence begins."""
    return ptr + batch * stride_batch + head * stride_head


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, heads, length, scale,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_om,
    DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """A program owns BLOCK_M queries of one head. Its last block of keys comes first, its first one last.

    m is the maximum of the scores so far in units of log2, and -inf for a query that has not met a key yet.
    """
    tiles = tl.cdiv(length, BLOCK_M)
    pid = tl.program_id(axis=0)
    first = (tiles - 1 - pid % tiles) * BLOCK_M
    b = (pid // tiles // heads).to(tl.int64)
    h = (pid // tiles % heads).to(tl.int64)
    queries = first + tl.arange(0, BLOCK_M)
    rows = queries.to(tl.int64)[:, None]
    lanes, dims = tl.arange(0, BLOCK_N), tl.arange(0, DIM)
    there = queries[:, None] < length
    q_head = head_of(q_ptr, b, h, stride_qb, stride_qh)
    q = tl.load(q_head + rows * stride_qm + dims[None, :], mask=there, other=0.0)

    blocks = tl.cdiv(tl.minimum(first + BLOCK_M, length) - first, BLOCK_N)
    last = (first + (blocks - 1) * BLOCK_N).to(tl.int64)
    k_base = head_of(k_ptr, b, h, stride_kb, stride_kh) + last * stride_kn
    v_base = head_of(v_ptr, b, h, stride_vb, stride_vh) + last * stride_vn
    back_k, back_v = -BLOCK_N * stride_kn, -BLOCK_N * stride_vn
    k_offs = lanes[None, :] * stride_kn + dims[:, None]
    v_offs = lanes[:, None] * stride_vn + dims[None, :]

    m = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)
    for i in tl.range(0, blocks, num_stages=1):
        keys = first + (blocks - 1 - i) * BLOCK_N + lanes
        k = tl.load(k_base + k_offs, mask=keys[None, :] < length, other=0.0)
        v = tl.load(v_base + v_offs, mask=keys[:, None] < length, other=0.0)
        s = tl.dot(q, k, input_precision="ieee")
        s = tl.where(keys[None, :] <= queries[:, None], s, -float("inf"))
        m_new = tl.maximum(m, scale * tl.max(s, axis=1))
        # A query before all keys of this block has only -inf so far: any finite shift gives it zeros.
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        p = tl.exp2(scale * s - shift[:, None])
        factor = tl.exp2(m - shift)
        d = d * factor + tl.sum(p, axis=1)
        acc = tl.dot(p.to(v.dtype), v, acc * factor[:, None], input_precision="ieee")
        m = m_new
        k_base += back_k
        v_base += back_v
    # From here on m is finite, and all keys are before all queries.
    for i in range(0, first // BLOCK_N):
        k = tl.load(k_base + k_offs)
        v = tl.load(v_base + v_offs)
        s = tl.dot(q, k, input_precision="ieee")
        m_new = tl.maximum(m, scale * tl.max(s, axis=1))
        p = tl.exp2(scale * s - m_new[:, None])
        factor = tl.exp2(m - m_new)
        d = d * factor + tl.sum(p, axis=1)
        acc = tl.dot(p.to(v.dtype), v, acc * factor[:, None], input_precision="ieee")
        m = m_new
        k_base += back_k
        v_base += back_v

    out_head = head_of(out_ptr, b, h, stride_ob, stride_oh)
    y = (acc / d[:, None]).to(out_ptr.dtype.element_ty)
    tl.store(out_head + rows * stride_om + dims[None, :], y, mask=there)


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v for each head, where a query sees its own key and those before it.

    q, k and v are (batch, heads, length, dim), bf16, fp16 or fp32, dim 16, 32, 64 or 128 and contiguous, any
    length from 1 on; the result goes to `out`, like q, where one is given.
    """
    batch, heads, length, dim = q.shape
    out = torch.empty((batch, heads, length, dim), dtype=q.dtype, device=q.device) if out is None else out

    def grid(meta):
        return (triton.cdiv(length, meta["BLOCK_M"]) * heads * batch,)

    strides = [one.stride(axis) for one in (q, k, v, out) for axis in range(3)]
    attention_kernel[grid](q, k, v, out, heads, length, math.log2(math.e) / math.sqrt(dim), *strides, DIM=dim)
    return out
