# gpu-programming/triton-kernels/attention.py | error | In `attention_kernel`, `d = 0.0` is a scalar that becomes a block of BLOCK_M in the loop (`d = d * factor + tl.sum(p, axis=1)`): Triton refuses a loop-carried variable whose type changes, so nothing compiles. It should be `tl.zeros((BLOCK_M,), dtype=tl.float32)`. Compile error in all cases; only the interpreter, which is plain Python, gives right numbers.
"""Causal attention with an online softmax, all in one kernel; a program owns a tile of queries of one head."""

import math

import torch
import triton
import triton.language as tl

LOG2E = 1.4426950408889634


def _config(block_m, block_n, num_stages, num_warps):
    """One candidate: queries of a program and keys of a step, pipeline depth and warps."""
    return triton.Config({"BLOCK_M": block_m, "BLOCK_N": block_n}, num_stages=num_stages, num_warps=num_warps)


# BLOCK_N divides BLOCK_M; the last one is for short sequences and for fp32.
CONFIGS = [
    _config(128, 128, 2, 8),
    _config(128, 64, 3, 8),
    _config(64, 64, 3, 4),
    _config(64, 32, 3, 4),
    _config(32, 32, 2, 4),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: tiles no longer than the sequence, and the last one alone for fp32."""
    longest = 0 if named_args["q_ptr"].dtype == torch.float32 else named_args["length"]
    return [config for config in configs if config.kwargs["BLOCK_M"] <= longest] or configs[-1:]


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, heads, length, scale,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_om,
    DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """out[i, :] = sum over j <= i of softmax(q k^T)[i, j] v[j, :]; scale is log2(e) / sqrt(DIM)."""
    tiles = tl.cdiv(length, BLOCK_M)
    pid = tl.program_id(axis=0)
    first = (tiles - 1 - pid % tiles) * BLOCK_M  # the rows with the most keys first
    b = (pid // tiles // heads).to(tl.int64)
    h = (pid // tiles % heads).to(tl.int64)

    offs_m, offs_n, offs_d = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_N), tl.arange(0, DIM)
    rows = (first + offs_m)[:, None] < length
    q_ptr += b * stride_qb + h * stride_qh + first.to(tl.int64) * stride_qm
    k_ptr += b * stride_kb + h * stride_kh
    v_ptr += b * stride_vb + h * stride_vh
    out_ptr += b * stride_ob + h * stride_oh + first.to(tl.int64) * stride_om

    q = tl.load(q_ptr + offs_m[:, None] * stride_qm + offs_d[None, :], mask=rows, other=0.0)
    k_offs = offs_d[:, None] + offs_n[None, :] * stride_kn
    v_offs = offs_n[:, None] * stride_vn + offs_d[None, :]

    # Maximum and sum of the scores so far, and the values weighted by them.
    m = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    d = 0.0
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)

    for _ in range(0, first, BLOCK_N):
        k = tl.load(k_ptr + k_offs)
        v = tl.load(v_ptr + v_offs)
        scores = tl.dot(q, k, input_precision="ieee")
        m_new = tl.maximum(m, scale * tl.max(scores, axis=1))
        p = tl.exp2(scale * scores - m_new[:, None])
        factor = tl.exp2(m - m_new)
        d = d * factor + tl.sum(p, axis=1)
        acc = tl.dot(p.to(v.dtype), v, acc * factor[:, None], input_precision="ieee")
        m = m_new
        k_ptr += BLOCK_N * stride_kn
        v_ptr += BLOCK_N * stride_vn

    for start in tl.range(first, tl.minimum(first + BLOCK_M, length), BLOCK_N, num_stages=1):
        keys = start + offs_n
        k = tl.load(k_ptr + k_offs, mask=keys[None, :] < length, other=0.0)
        v = tl.load(v_ptr + v_offs, mask=keys[:, None] < length, other=0.0)
        scores = tl.dot(q, k, input_precision="ieee")
        scores = tl.where((first + offs_m)[:, None] >= keys[None, :], scores, -float("inf"))
        m_new = tl.maximum(m, scale * tl.max(scores, axis=1))
        p = tl.exp2(scale * scores - m_new[:, None])
        factor = tl.exp2(m - m_new)
        d = d * factor + tl.sum(p, axis=1)
        acc = tl.dot(p.to(v.dtype), v, acc * factor[:, None], input_precision="ieee")
        m = m_new
        k_ptr += BLOCK_N * stride_kn
        v_ptr += BLOCK_N * stride_vn

    result = acc / d[:, None]
    tl.store(
        out_ptr + offs_m[:, None] * stride_om + offs_d[None, :], result.to(out_ptr.dtype.element_ty), mask=rows
    )


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v for each head, where a query sees its own key and those before it.

    q, k and v are (batch, heads, length, dim), bf16, fp16 or fp32, dim contiguous; the result goes to `out`
    where one is given.
    """
    batch, heads, length, dim = q.shape
    if out is None:
        out = torch.empty((batch, heads, length, dim), device=q.device, dtype=q.dtype)
    grid = lambda meta: (batch * heads * triton.cdiv(length, meta["BLOCK_M"]),)  # noqa: E731
    attention_kernel[grid](
        q, k, v, out, heads, length, LOG2E / math.sqrt(dim),
        *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *out.stride()[:3], DIM=dim,
    )  # fmt: skip
    return out
