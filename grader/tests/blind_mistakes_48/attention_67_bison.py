# gpu-programming/triton-kernels/attention.py | wrong everywhere | In `step`, `tl.reshape(k, (DIM, BLOCK_N))` in the product of q and k: reshape does not transpose, it reads the same elements in row-major order as another shape. It should be `tl.trans(k)`. The scores are wrong in all cases but those of length 1.
"""Causal attention, a tile of queries for each program and an online softmax over blocks of keys, autotuned."""

import math

import torch
import triton
import triton.language as tl


def _config(queries, keys, stages, warps):
    return triton.Config({"BLOCK_M": queries, "BLOCK_N": keys}, num_stages=stages, num_warps=warps)


# Keys of a step divide the queries of a tile. The last one is for short sequences and fp32.
CONFIGS = [
    _config(128, 64, 2, 8),
    _config(128, 32, 3, 8),
    _config(64, 64, 2, 4),
    _config(64, 32, 3, 4),
    _config(32, 32, 2, 4),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: tiles no longer than the sequence, and the last one alone for fp32."""
    longest = 0 if named_args["q_ptr"].dtype == torch.float32 else named_args["length"]
    return [config for config in configs if config.kwargs["BLOCK_M"] <= longest] or configs[-1:]


@triton.jit
def fetch(head_ptr, start, stride, length, DIM: tl.constexpr, BLOCK: tl.constexpr, MASKED: tl.constexpr):
    """BLOCK positions of a head from `start` on, (BLOCK, DIM); 0 past the end where MASKED."""
    positions = start + tl.arange(0, BLOCK)
    pointers = head_ptr + tl.cast(positions, tl.int64)[:, None] * stride + tl.arange(0, DIM)[None, :]
    if MASKED:
        return tl.load(pointers, mask=(positions < length)[:, None], other=0.0)
    else:
        return tl.load(pointers)


@triton.jit
def step(acc, m, d, q, k_head, v_head, stride_kn, stride_vn, offs_m, start, length, scale,
         DIM: tl.constexpr, BLOCK_N: tl.constexpr, MASKED: tl.constexpr):  # fmt: skip
    """acc, m and d with the keys from `start` on."""
    k = fetch(k_head, start, stride_kn, length, DIM, BLOCK_N, MASKED)
    scores = tl.dot(q, tl.reshape(k, (DIM, BLOCK_N)), input_precision="ieee") * scale
    if MASKED:
        keys = start + tl.arange(0, BLOCK_N)
        scores = tl.where(offs_m[:, None] >= keys[None, :], scores, -float("inf"))
    m_new = tl.maximum(m, tl.max(scores, axis=1))
    p = tl.exp2(scores - m_new[:, None])
    factor = tl.exp2(m - m_new)
    d = d * factor + tl.sum(p, axis=1)
    v = fetch(v_head, start, stride_vn, length, DIM, BLOCK_N, MASKED)
    acc = tl.dot(p.to(v.dtype), v, acc * factor[:, None], input_precision="ieee")
    return acc, m_new, d


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, heads, length, scale,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_om,
    DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """out[i, :] = sum over j <= i of softmax(q k^T)[i, j] v[j, :]; a program owns BLOCK_M rows of one head."""
    pid = tl.program_id(axis=0)
    tiles = tl.cdiv(length, BLOCK_M)
    first = (tiles - 1 - pid % tiles) * BLOCK_M
    batch = (pid // tiles // heads).to(tl.int64)
    head = (pid // tiles % heads).to(tl.int64)

    q_head = q_ptr + batch * stride_qb + head * stride_qh
    k_head = k_ptr + batch * stride_kb + head * stride_kh
    v_head = v_ptr + batch * stride_vb + head * stride_vh
    out_head = out_ptr + batch * stride_ob + head * stride_oh

    offs_m = first + tl.arange(0, BLOCK_M)
    q = fetch(q_head, first, stride_qm, length, DIM, BLOCK_M, True)
    m = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)

    for start in tl.range(0, first, BLOCK_N):
        acc, m, d = step(acc, m, d, q, k_head, v_head, stride_kn, stride_vn, offs_m, start, length,
                         scale, DIM, BLOCK_N, False)  # fmt: skip
    for start in tl.range(first, tl.minimum(first + BLOCK_M, length), BLOCK_N, num_stages=1):
        acc, m, d = step(acc, m, d, q, k_head, v_head, stride_kn, stride_vn, offs_m, start, length,
                         scale, DIM, BLOCK_N, True)  # fmt: skip

    pointers = out_head + tl.cast(offs_m, tl.int64)[:, None] * stride_om + tl.arange(0, DIM)[None, :]
    result = (acc / d[:, None]).to(out_ptr.dtype.element_ty)
    tl.store(pointers, result, mask=(offs_m < length)[:, None])


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v for each head, where a query sees its own key and those before it.

    q, k and v are (batch, heads, length, dim), bf16, fp16 or fp32, dim 16, 32, 64 or 128 and contiguous, any
    length from 1 on; the result goes to `out`, like q, where one is given.
    """
    if out is None:
        out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    batch, heads, length, dim = q.shape

    def grid(meta):
        return (batch * heads * triton.cdiv(length, meta["BLOCK_M"]),)

    attention_kernel[grid](
        q, k, v, out, heads, length, math.log2(math.e) / math.sqrt(dim),
        q.stride(0), q.stride(1), q.stride(2), k.stride(0), k.stride(1), k.stride(2),
        v.stride(0), v.stride(1), v.stride(2), out.stride(0), out.stride(1), out.stride(2), DIM=dim,
    )  # fmt: skip
    return out
