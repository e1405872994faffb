# gpu-programming/triton-kernels/attention.py | wrong everywhere | In `attention_kernel`, `triangle = rows[:, None] >= keys[None, :]` compares positions inside the tile and inside the block, and is used for every block of the second loop; it should be `first + rows[:, None] >= start + keys[None, :]`. In all blocks of the diagonal but the first, queries see later keys (and keys past the end count with score 0). All configs have BLOCK_N < BLOCK_M, so it shows in every sequence longer than BLOCK_N of the chosen config (16 for fp32 and short ones).
"""Causal attention with an online softmax: full blocks of keys first, then those at the diagonal."""

import math

import torch
import triton
import triton.language as tl

LOG2E = 1.4426950408889634

# (queries of a program, keys of a step, stages, warps); keys divide queries. The last one is for fp32.
CONFIGS = [
    triton.Config({"BLOCK_M": block_m, "BLOCK_N": block_n}, num_stages=stages, num_warps=warps)
    for block_m, block_n, stages, warps in (
        (128, 64, 3, 8),
        (128, 32, 4, 8),
        (64, 32, 3, 4),
        (32, 16, 2, 4),
    )
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: tiles no longer than the sequence, and the last one alone for fp32."""
    longest = 0 if named_args["q_ptr"].dtype == torch.float32 else named_args["length"]
    return [config for config in configs if config.kwargs["BLOCK_M"] <= longest] or configs[-1:]


@triton.jit
def update(acc, m, d, scores, v):
    """Fold scores, to the base 2 and -inf where hidden, and their values into acc, m and d."""
    m_new = tl.maximum(m, tl.max(scores, axis=1))
    p = tl.exp2(scores - m_new[:, None])
    factor = tl.exp2(m - m_new)
    acc = tl.dot(p.to(v.dtype), v, acc * factor[:, None], input_precision="ieee")
    return acc, m_new, d * factor + tl.sum(p, axis=1)


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, heads, length, scale,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_om,
    DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """A program owns BLOCK_M queries of one head; the tiles with the most keys start first."""
    pid = tl.program_id(axis=0)
    tiles = tl.cdiv(length, BLOCK_M)
    first = (tiles - 1 - pid % tiles) * BLOCK_M
    which = pid // tiles
    b = (which // heads).to(tl.int64)
    h = (which % heads).to(tl.int64)

    rows = tl.arange(0, BLOCK_M)
    keys = tl.arange(0, BLOCK_N)
    dims = tl.arange(0, DIM)
    inside = (first + rows)[:, None] < length
    q_tile = q_ptr + b * stride_qb + h * stride_qh + first.to(tl.int64) * stride_qm
    q = tl.load(q_tile + rows[:, None] * stride_qm + dims[None, :], mask=inside, other=0.0)

    # One pointer moves through the keys, and a block of offsets stays: k as (DIM, BLOCK_N), v as it lies.
    k_step = k_ptr + b * stride_kb + h * stride_kh
    v_step = v_ptr + b * stride_vb + h * stride_vh
    k_offs = dims[:, None] + keys[None, :] * stride_kn
    v_offs = keys[:, None] * stride_vn + dims[None, :]

    m = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)
    for _ in range(0, first, BLOCK_N):
        k = tl.load(k_step + k_offs)
        scores = tl.dot(q, k, input_precision="ieee") * scale
        v = tl.load(v_step + v_offs)
        acc, m, d = update(acc, m, d, scores, v)
        k_step += BLOCK_N * stride_kn
        v_step += BLOCK_N * stride_vn

    # What a block at the diagonal shows of its keys; loads of it stop at the end of the sequence.
    triangle = rows[:, None] >= keys[None, :]
    for start in tl.range(first, tl.minimum(first + BLOCK_M, length), BLOCK_N, num_stages=1):
        exists = start + keys < length
        k = tl.load(k_step + k_offs, mask=exists[None, :], other=0.0)
        scores = tl.dot(q, k, input_precision="ieee") * scale
        scores = tl.where(triangle, scores, -float("inf"))
        v = tl.load(v_step + v_offs, mask=exists[:, None], other=0.0)
        acc, m, d = update(acc, m, d, scores, v)
        k_step += BLOCK_N * stride_kn
        v_step += BLOCK_N * stride_vn

    out_tile = out_ptr + b * stride_ob + h * stride_oh + first.to(tl.int64) * stride_om
    result = (acc / d[:, None]).to(out_ptr.dtype.element_ty)
    tl.store(out_tile + rows[:, None] * stride_om + dims[None, :], result, mask=inside)


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v for each head, where a query sees its own key and those before it.

    q, k and v are (batch, heads, length, dim), bf16, fp16 or fp32, dim contiguous; the result goes to `out`
    where one is given.
    """
    batch, heads, length, dim = q.shape
    if out is None:
        out = torch.empty((batch, heads, length, dim), device=q.device, dtype=q.dtype)
    grid = lambda meta: (triton.cdiv(length, meta["BLOCK_M"]) * batch * heads,)  # noqa: E731
    attention_kernel[grid](
        q, k, v, out, heads, length, LOG2E / math.sqrt(dim),
        *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *out.stride()[:3], DIM=dim,
    )  # fmt: skip
    return out
