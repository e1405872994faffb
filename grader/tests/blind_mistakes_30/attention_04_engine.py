# gpu-programming/triton-kernels/attention.py | wrong everywhere | In attention_kernel the reversed number of the tile is tl.num_programs(1) - tl.program_id(1), one too high: tiles run from the number of tiles down to 1, so the first BLOCK_M queries of every head are never written, and one program works behind the end and stores nothing. It shows in every case; a sequence no longer than BLOCK_M stays unwritten altogether, later rows are right. It should be tl.num_programs(1) - 1 - tl.program_id(1).
"""Causal attention with one loop over blocks of keys, all of them masked in the same way."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, num_stages, num_warps):
    """One candidate: queries of a program and keys of a step, powers of two, pipeline depth and warps."""
    return triton.Config({"BLOCK_M": block_m, "BLOCK_N": block_n}, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 64, 3, 8),
    _config(64, 64, 3, 4),
    _config(64, 32, 3, 4),
    _config(32, 32, 2, 4),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: tiles no longer than the sequence, and the last one alone for fp32."""
    longest = 0 if named_args["q_ptr"].dtype == torch.float32 else named_args["length"]
    return [config for config in configs if config.kwargs["BLOCK_M"] <= longest] or configs[-1:]


@triton.jit
def fold(acc, m, d, scores, v):
    """The online softmax: scores are scaled and -inf where a key is hidden."""
    m_new = tl.maximum(m, tl.max(scores, axis=1))
    alpha = tl.exp(m - m_new)
    p = tl.exp(scores - m_new[:, None])
    acc = acc * alpha[:, None] + tl.dot(p.to(v.dtype), v, input_precision="ieee")
    d = d * alpha + tl.sum(p, axis=1)
    return acc, m_new, d


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, heads, length, scale,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_om,
    DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Axis 0 of the grid counts the heads of all batches, axis 1 the tiles of queries."""
    batch = (tl.program_id(0) // heads).to(tl.int64)
    head = (tl.program_id(0) % heads).to(tl.int64)
    # Long rows first, so that what is left at the end is short.
    tile = tl.num_programs(1) - tl.program_id(1)
    queries = tile * BLOCK_M + tl.arange(0, BLOCK_M)
    dims = tl.arange(0, DIM)

    q_row = q_ptr + batch * stride_qb + head * stride_qh + queries.to(tl.int64) * stride_qm
    q = tl.load(q_row[:, None] + dims[None, :], mask=queries[:, None] < length, other=0.0)
    k_head = k_ptr + batch * stride_kb + head * stride_kh
    v_head = v_ptr + batch * stride_vb + head * stride_vh

    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)
    m = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((BLOCK_M,), dtype=tl.float32)
    end = tl.minimum((tile + 1) * BLOCK_M, length)
    for begin in range(0, end, BLOCK_N):
        keys = begin + tl.arange(0, BLOCK_N)
        far = keys.to(tl.int64)[:, None]
        there = keys[:, None] < length
        k = tl.load(k_head + far * stride_kn + dims[None, :], mask=there, other=0.0)
        v = tl.load(v_head + far * stride_vn + dims[None, :], mask=there, other=0.0)
        scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        scores = tl.where(keys[None, :] <= queries[:, None], scores, -float("inf"))
        acc, m, d = fold(acc, m, d, scores, v)

    out_row = out_ptr + batch * stride_ob + head * stride_oh + queries.to(tl.int64) * stride_om
    tl.store(out_row[:, None] + dims[None, :], acc / d[:, None], mask=queries[:, None] < length)


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Causal softmax(q k^T / sqrt(dim)) v for tensors (batch, heads, length, dim), dim contiguous."""
    if out is None:
        out = q.new_empty(q.shape)
    batch, heads, length, dim = q.shape
    qb, qh, qm, _ = q.stride()
    kb, kh, kn, _ = k.stride()
    vb, vh, vn, _ = v.stride()
    ob, oh, om, _ = out.stride()

    def grid(meta):
        return (batch * heads, triton.cdiv(length, meta["BLOCK_M"]))

    attention_kernel[grid](
        q, k, v, out, heads, length, dim**-0.5,
        qb, qh, qm, kb, kh, kn, vb, vh, vn, ob, oh, om,
        DIM=dim,
    )  # fmt: skip
    return out
