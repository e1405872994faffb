# gpu-programming/triton-kernels/attention.py | wrong everywhere | In `scores_of`, `tl.reshape(k, (DIM, BLOCK_N))` takes the numbers of k in another order and does not transpose; it should be `tl.trans(k)`. All scores are wrong, so the result is wrong in every case with more than one key (length 1 is right, because its one key has the weight 1).
"""Causal attention, one tile of queries for each program, online softmax in powers of two."""

import math

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, num_stages, num_warps):
    return triton.Config({"BLOCK_M": block_m, "BLOCK_N": block_n}, num_stages=num_stages, num_warps=num_warps)


# BLOCK_N divides BLOCK_M in each of them; the last one is for short sequences and for fp32.
CONFIGS = [
    _config(128, 64, 2, 8),
    _config(128, 32, 3, 8),
    _config(64, 64, 2, 4),
    _config(64, 32, 3, 4),
    _config(32, 32, 2, 4),
]


def fitting(configs, named_args, **kwargs):
    """Tiles no longer than the sequence, and the last one alone for fp32."""
    longest = 0 if named_args["q_ptr"].dtype == torch.float32 else named_args["length"]
    return [config for config in configs if config.kwargs["BLOCK_M"] <= longest] or configs[-1:]


@triton.jit
def scores_of(q, k, DIM: tl.constexpr, BLOCK_N: tl.constexpr):
    """The products of all queries with all keys; a key is a row of k, and a column of the second operand."""
    return tl.dot(q, tl.reshape(k, (DIM, BLOCK_N)), input_precision="ieee")


@triton.jit
def absorb(acc, m, d, scores, v, scale):
    """One more block of scores and values into the sums, which are relative to 2 ** m."""
    m_new = tl.maximum(m, scale * tl.max(scores, axis=1))
    p = tl.exp2(scale * scores - m_new[:, None])
    shrink = tl.exp2(m - m_new)
    d = d * shrink + tl.sum(p, axis=1)
    acc = tl.dot(p.to(v.dtype), v, acc * shrink[:, None], input_precision="ieee")
    return acc, m_new, d


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, heads, length, scale,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_om,
    DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """A program owns BLOCK_M queries of one head; the last tile of all heads comes first, as it has most keys."""
    pid, tiles = tl.program_id(axis=0), tl.cdiv(length, BLOCK_M)
    all_heads = tl.num_programs(axis=0) // tiles
    first = (tiles - 1 - pid // all_heads) * BLOCK_M
    which = pid % all_heads
    batch, head = (which // heads).to(tl.int64), (which % heads).to(tl.int64)
    q_head = q_ptr + batch * stride_qb + head * stride_qh
    k_head = k_ptr + batch * stride_kb + head * stride_kh
    v_head = v_ptr + batch * stride_vb + head * stride_vh
    out_head = out_ptr + batch * stride_ob + head * stride_oh

    rows, columns = first + tl.arange(0, BLOCK_M), tl.arange(0, DIM)
    steps = tl.arange(0, BLOCK_N)
    exists = rows[:, None] < length
    q = tl.load(q_head + rows.to(tl.int64)[:, None] * stride_qm + columns[None, :], mask=exists, other=0.0)

    m = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)

    # Every query of the tile sees all of these keys, and all of them exist.
    for start in tl.range(0, first, BLOCK_N):
        keys = (start + steps).to(tl.int64)[:, None]
        k = tl.load(k_head + keys * stride_kn + columns[None, :])
        v = tl.load(v_head + keys * stride_vn + columns[None, :])
        acc, m, d = absorb(acc, m, d, scores_of(q, k, DIM, BLOCK_N), v, scale)

    # Here the diagonal passes through, and perhaps the sequence ends.
    for start in tl.range(first, tl.minimum(first + BLOCK_M, length), BLOCK_N, num_stages=1):
        keys = start + steps
        inside = keys[:, None] < length
        k = tl.load(k_head + keys.to(tl.int64)[:, None] * stride_kn + columns[None, :], mask=inside, other=0.0)
        v = tl.load(v_head + keys.to(tl.int64)[:, None] * stride_vn + columns[None, :], mask=inside, other=0.0)
        scores = scores_of(q, k, DIM, BLOCK_N)
        scores = tl.where(rows[:, None] >= keys[None, :], scores, -float("inf"))
        acc, m, d = absorb(acc, m, d, scores, v, scale)

    result = acc / d[:, None]
    out_ptrs = out_head + rows.to(tl.int64)[:, None] * stride_om + columns[None, :]
    tl.store(out_ptrs, result.to(out_ptr.dtype.element_ty), mask=exists)


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v for each head, where a query sees its own key and those before it."""
    batch, heads, length, dim = q.shape
    if out is None:
        out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    attention_kernel[lambda meta: (triton.cdiv(length, meta["BLOCK_M"]) * batch * heads,)](
        q, k, v, out, heads, length, math.log2(math.e) / math.sqrt(dim),
        q.stride(0), q.stride(1), q.stride(2), k.stride(0), k.stride(1), k.stride(2),
        v.stride(0), v.stride(1), v.stride(2), out.stride(0), out.stride(1), out.stride(2),
        DIM=dim,
    )  # fmt: skip
    return out
