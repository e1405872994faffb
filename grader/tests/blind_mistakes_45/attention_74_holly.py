# gpu-programming/triton-kernels/attention.py | error | In `attention`, `one.view(batch * heads, length, dim)`: batch and heads cannot become one axis by a view where the heads lie side by side at each position, and `view` raises RuntimeError; kernels should get the strides of both axes. Shows where a tensor is swapped (heads beside each other) and batch and heads are both greater than 1; other layouts are right.
"""Causal attention without the matrix of scores: online softmax over blocks of keys, autotuned."""

import math

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"BLOCK_M": 128, "BLOCK_N": 64}, num_stages=3, num_warps=8),
    triton.Config({"BLOCK_M": 64, "BLOCK_N": 64}, num_stages=3, num_warps=4),
    triton.Config({"BLOCK_M": 64, "BLOCK_N": 32}, num_stages=3, num_warps=4),
    triton.Config({"BLOCK_M": 32, "BLOCK_N": 32}, num_stages=2, num_warps=4),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: tiles no longer than the sequence, and the last one alone for fp32."""
    longest = 0 if named_args["q_ptr"].dtype == torch.float32 else named_args["length"]
    return [config for config in configs if config.kwargs["BLOCK_M"] <= longest] or configs[-1:]


@triton.jit
def larger(a, b):
    return tl.maximum(a, b)


@triton.jit
def plus(a, b):
    return a + b


@triton.jit
def step(acc, m, d, q, k, v, hidden, scale, MASKED: tl.constexpr):
    """Fold the keys k and values v into acc, m and d; hidden is true where a query may not see a key."""
    s = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
    if MASKED:
        s = tl.where(hidden, -float("inf"), s)
    top = tl.maximum(m, tl.reduce(s, 1, larger))
    p = tl.exp2(s - top[:, None])
    shrink = tl.exp2(m - top)
    acc = tl.dot(p.to(v.dtype), v, acc * shrink[:, None], input_precision="ieee")
    d = d * shrink + tl.reduce(p, 1, plus)
    return acc, top, d


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, length, scale,
    stride_qh, stride_qm, stride_kh, stride_kn, stride_vh, stride_vn, stride_oh, stride_om,
    DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """q, k, v and out are (all heads of the batch, length, DIM); a program owns BLOCK_M queries of one head."""
    tiles = tl.cdiv(length, BLOCK_M)
    pid = tl.program_id(axis=0)
    head = (pid // tiles).to(tl.int64)
    first = (tiles - 1 - pid % tiles) * BLOCK_M
    queries = first + tl.arange(0, BLOCK_M)
    rows = queries.to(tl.int64)[:, None]
    lanes = tl.arange(0, BLOCK_N)
    dims = tl.arange(0, DIM)[None, :]
    there = queries[:, None] < length

    q = tl.load(q_ptr + head * stride_qh + rows * stride_qm + dims, mask=there, other=0.0)
    k_offs = lanes[:, None] * stride_kn + dims
    v_offs = lanes[:, None] * stride_vn + dims
    k_next = k_ptr + head * stride_kh
    v_next = v_ptr + head * stride_vh

    m = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)
    for start in range(0, first, BLOCK_N):
        k = tl.load(k_next + k_offs)
        v = tl.load(v_next + v_offs)
        acc, m, d = step(acc, m, d, q, k, v, there, scale, False)
        k_next += BLOCK_N * stride_kn
        v_next += BLOCK_N * stride_vn
    for start in tl.range(first, tl.minimum(first + BLOCK_M, length), BLOCK_N, num_stages=1):
        keys = start + lanes
        k = tl.load(k_next + k_offs, mask=keys[:, None] < length, other=0.0)
        v = tl.load(v_next + v_offs, mask=keys[:, None] < length, other=0.0)
        acc, m, d = step(acc, m, d, q, k, v, keys[None, :] > queries[:, None], scale, True)
        k_next += BLOCK_N * stride_kn
        v_next += BLOCK_N * stride_vn

    y = (acc / d[:, None]).to(out_ptr.dtype.element_ty)
    tl.store(out_ptr + head * stride_oh + rows * stride_om + dims, y, mask=there)


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v for each head, where a query sees its own key and those before it.

    q, k and v are (batch, heads, length, dim), bf16, fp16 or fp32, dim 16, 32, 64 or 128 and contiguous, any
    length from 1 on; the result goes to `out`, like q, where one is given. After Dao, arXiv:2307.08691.
    """
    batch, heads, length, dim = q.shape
    out = torch.empty((batch, heads, length, dim), dtype=q.dtype, device=q.device) if out is None else out
    # Heads of different sequences have nothing to do with each other: one axis for all of them.
    flat_q, flat_k, flat_v, flat_out = [one.view(batch * heads, length, dim) for one in (q, k, v, out)]

    def grid(meta):
        return (triton.cdiv(length, meta["BLOCK_M"]) * batch * heads,)

    attention_kernel[grid](
        flat_q, flat_k, flat_v, flat_out, length, math.log2(math.e) / math.sqrt(dim),
        flat_q.stride(0), flat_q.stride(1), flat_k.stride(0), flat_k.stride(1),
        flat_v.stride(0), flat_v.stride(1), flat_out.stride(0), flat_out.stride(1),
        DIM=dim,
    )  # fmt: skip
    return out
