# gpu-programming/triton-kernels/attention.py | wrong everywhere | `fold` returns `acc, m, d` with the old maximum, so m stays -inf, the factor `tl.exp2(m - m_new)` is 0 at every block, and only the last block of keys counts (every row past the first BLOCK_N keys is wrong); it should return `acc, m_new, d`.
"""Causal attention without the matrix of scores: online softmax over blocks of keys, autotuned."""

import math

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, num_stages, num_warps):
    """One candidate: queries of a program and keys of a step, powers of two, pipeline depth and warps."""
    return triton.Config({"BLOCK_M": block_m, "BLOCK_N": block_n}, num_stages=num_stages, num_warps=num_warps)


# Square tiles: then exactly one block meets the diagonal.
CONFIGS = [
    _config(128, 128, 2, 8),
    _config(64, 64, 3, 4),
    _config(64, 64, 2, 4),
    _config(32, 32, 2, 4),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: tiles no longer than the sequence, and the last one alone for fp32."""
    # Exact fp32 runs without tensor cores, where a large tile unrolls into thousands of instructions.
    longest = 0 if named_args["q_ptr"].dtype == torch.float32 else named_args["length"]
    return [config for config in configs if config.kwargs["BLOCK_M"] <= longest] or configs[-1:]


@triton.jit
def fold(acc, m, d, q, k_ptrs, v_ptrs, offs_m, keys, length, scale, DIAGONAL: tl.constexpr):
    """The sums acc of p * v and d of p with one more block of keys, p = exp2(scale * scores - m), and m."""
    if DIAGONAL:
        exists = keys < length
        k = tl.load(k_ptrs, mask=exists[None, :], other=0.0)
        v = tl.load(v_ptrs, mask=exists[:, None], other=0.0)
    else:
        k = tl.load(k_ptrs)
        v = tl.load(v_ptrs)
    scores = tl.dot(q, k, input_precision="ieee")
    if DIAGONAL:
        scores = tl.where(offs_m[:, None] >= keys[None, :], scores, -float("inf"))
    m_new = tl.maximum(m, scale * tl.max(scores, axis=1))
    p = tl.exp2(scale * scores - m_new[:, None])
    factor = tl.exp2(m - m_new)
    acc = acc * factor[:, None]
    acc = tl.dot(p.to(v.dtype), v, acc, input_precision="ieee")
    d = d * factor + tl.sum(p, axis=1)
    return acc, m, d


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, heads, length, scale,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_om,
    DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """out[i, :] = sum over j <= i of softmax(q k^T)[i, j] v[j, :]; a program owns BLOCK_M rows of one head."""
    pid = tl.program_id(0)
    tiles = tl.cdiv(length, BLOCK_M)
    # The last tile of every head comes first: it has the most keys.
    start_m = (tiles - 1 - pid % tiles) * BLOCK_M
    batch = (pid // tiles // heads).to(tl.int64)
    head = (pid // tiles % heads).to(tl.int64)

    offs_m = start_m + tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    offs_d = tl.arange(0, DIM)
    rows = offs_m.to(tl.int64)
    q_base = q_ptr + batch * stride_qb + head * stride_qh
    k_base = k_ptr + batch * stride_kb + head * stride_kh
    v_base = v_ptr + batch * stride_vb + head * stride_vh
    out_base = out_ptr + batch * stride_ob + head * stride_oh
    q = tl.load(q_base + rows[:, None] * stride_qm + offs_d[None, :], mask=offs_m[:, None] < length, other=0.0)

    m = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)
    for start_n in range(0, start_m, BLOCK_N):
        keys = start_n + offs_n
        far = keys.to(tl.int64)
        k_ptrs = k_base + far[None, :] * stride_kn + offs_d[:, None]
        v_ptrs = v_base + far[:, None] * stride_vn + offs_d[None, :]
        acc, m, d = fold(acc, m, d, q, k_ptrs, v_ptrs, offs_m, keys, length, scale, False)
    for start_n in tl.range(start_m, min(start_m + BLOCK_M, length), BLOCK_N, num_stages=1):
        keys = start_n + offs_n
        far = keys.to(tl.int64)
        k_ptrs = k_base + far[None, :] * stride_kn + offs_d[:, None]
        v_ptrs = v_base + far[:, None] * stride_vn + offs_d[None, :]
        acc, m, d = fold(acc, m, d, q, k_ptrs, v_ptrs, offs_m, keys, length, scale, True)

    acc = acc / d[:, None]
    out_ptrs = out_base + rows[:, None] * stride_om + offs_d[None, :]
    tl.store(out_ptrs, acc.to(out_ptr.dtype.element_ty), mask=offs_m[:, None] < length)


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v for each head, where a query sees its own key and those before it.

    q, k and v are (batch, heads, length, dim), bf16, fp16 or fp32, dim 16, 32, 64 or 128 and contiguous, any
    length from 1 on; the result goes to `out`, like q, where one is given. After Dao, arXiv:2307.08691.
    """
    out = torch.empty(q.shape, device=q.device, dtype=q.dtype) if out is None else out
    batch, heads, length, dim = q.shape
    scale = math.log2(math.e) / math.sqrt(dim)
    grid = lambda meta: (triton.cdiv(length, meta["BLOCK_M"]) * batch * heads,)  # noqa: E731
    attention_kernel[grid](
        q, k, v, out, heads, length, scale,
        *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *out.stride()[:3], DIM=dim,
    )  # fmt: skip
    return out
