# gpu-programming/triton-kernels/attention.py | error | fold returns its results as m_new, d, acc, while attention_kernel unpacks them as acc, m, d = fold(...): acc gets the shape (BLOCK_M,) and d the shape (BLOCK_M, DIM), so Triton does not compile the loops (loop-carried variables change their type), and in the interpreter shapes do not fit after the first block; fold should return acc, m_new, d. Fails in every case.
"""Causal attention: the keys of a program in two runs, one without masks and one across the diagonal."""

import math

import torch
import triton
import triton.language as tl

LOG2_OF_E = 1.0 / math.log(2.0)


def _config(block_m, block_n, num_stages, num_warps):
    """One candidate: queries, keys of a step, pipeline depth, warps."""
    return triton.Config(
        kwargs={"BLOCK_M": block_m, "BLOCK_N": block_n}, num_stages=num_stages, num_warps=num_warps
    )


CONFIGS = [
    _config(128, 128, 2, 8),
    _config(128, 64, 3, 8),
    _config(64, 64, 3, 4),
    _config(64, 64, 2, 4),
    _config(32, 32, 2, 4),
]


def fitting(configs, named_args, **kwargs):
    """The last config for fp32 and for short sequences, else all those whose tiles the sequence fills."""
    small = configs[-1:]
    if named_args["q_ptr"].dtype == torch.float32:
        return small
    return [config for config in configs if config.kwargs["BLOCK_M"] <= named_args["length"]] or small


@triton.jit
def fold(q, k_ptrs, v_ptrs, acc, m, d, offs_m, keys, length, scale, DIAGONAL: tl.constexpr):
    """One more block of keys: the running maximum, the sum of the weights, and the weighted values."""
    exists = keys < length
    if DIAGONAL:
        k = tl.load(k_ptrs, mask=exists[None, :], other=0.0)
    else:
        k = tl.load(k_ptrs)
    s = tl.dot(q, k, input_precision="ieee") * scale
    if DIAGONAL:
        s = tl.where(offs_m[:, None] >= keys[None, :], s, -float("inf"))

    m_new = tl.maximum(m, tl.max(s, axis=1))
    p = tl.exp2(s - m_new[:, None])
    factor = tl.exp2(m - m_new)
    d = d * factor + tl.sum(p, axis=1)

    if DIAGONAL:
        v = tl.load(v_ptrs, mask=exists[:, None], other=0.0)
    else:
        v = tl.load(v_ptrs)
    acc = tl.dot(p.to(v.dtype), v, acc * factor[:, None], input_precision="ieee")
    return m_new, d, acc


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, heads, length, scale,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_om,
    DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """out[i, :] = sum over j <= i of softmax(q k^T)[i, j] v[j, :]; a program owns BLOCK_M rows of one head."""
    tiles = tl.cdiv(length, BLOCK_M)
    pid = tl.program_id(0)
    which = pid // tiles
    b = (which // heads).to(tl.int64)
    h = (which % heads).to(tl.int64)
    first = (tiles - 1 - pid % tiles) * BLOCK_M

    offs_m = first + tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    offs_d = tl.arange(0, DIM)
    in_sequence = (offs_m < length)[:, None]
    long_m = offs_m.to(tl.int64)[:, None]

    q_ptrs = q_ptr + b * stride_qb + h * stride_qh + long_m * stride_qm + offs_d[None, :]
    k_ptrs = k_ptr + b * stride_kb + h * stride_kh + offs_n[None, :] * stride_kn + offs_d[:, None]
    v_ptrs = v_ptr + b * stride_vb + h * stride_vh + offs_n[:, None] * stride_vn + offs_d[None, :]
    q = tl.load(q_ptrs, mask=in_sequence, other=0.0)

    m = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)

    for start in range(0, first, BLOCK_N):
        acc, m, d = fold(q, k_ptrs, v_ptrs, acc, m, d, offs_m, start + offs_n, length, scale, DIAGONAL=False)
        k_ptrs += BLOCK_N * stride_kn
        v_ptrs += BLOCK_N * stride_vn
    for start in tl.range(first, tl.minimum(first + BLOCK_M, length), BLOCK_N, num_stages=1):
        acc, m, d = fold(q, k_ptrs, v_ptrs, acc, m, d, offs_m, start + offs_n, length, scale, DIAGONAL=True)
        k_ptrs += BLOCK_N * stride_kn
        v_ptrs += BLOCK_N * stride_vn

    out_ptrs = out_ptr + b * stride_ob + h * stride_oh + long_m * stride_om + offs_d[None, :]
    tl.store(out_ptrs, (acc / d[:, None]).to(out_ptr.dtype.element_ty), mask=in_sequence)


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Causal attention of each head, (batch, heads, length, dim), into `out` or a new contiguous tensor."""
    batch, heads, length, dim = q.shape
    if out is None:
        out = torch.empty((batch, heads, length, dim), dtype=q.dtype, device=q.device)

    def grid(meta):
        return (batch * heads * triton.cdiv(length, meta["BLOCK_M"]),)

    attention_kernel[grid](
        q, k, v, out, heads, length, LOG2_OF_E * dim**-0.5,
        q.stride(0), q.stride(1), q.stride(2),
        k.stride(0), k.stride(1), k.stride(2),
        v.stride(0), v.stride(1), v.stride(2),
        out.stride(0), out.stride(1), out.stride(2),
        DIM=dim,
    )  # fmt: skip
    return out
