# gpu-programming/triton-kernels/attention.py | two mistakes | (1) In `attention`, `2.0 ** (bits // 2)` should be `2.0 ** (bits / 2)`, the square root of dim: the integer division gives 4 for dim 32 and 8 for dim 128, so the scores have a wrong scale for dim 32 and 128 (16 and 64 are right). (2) In `attention_kernel`, `tl.where(queries >= keys, scores, HIDDEN)` with `HIDDEN = -1.0e4` should have -inf: where all visible scores lie far below that (the inputs "below", dim 64, fp32 and bf16), hidden keys get the weight and the visible ones none.
"""Causal attention with block pointers: online softmax over blocks of keys, autotuned."""

import torch
import triton
import triton.language as tl

LOG2E = 1.4426950408889634
HIDDEN = tl.constexpr(-1.0e4)


def _config(block_m, block_n, num_stages, num_warps):
    """One candidate: queries of a program and keys of a step, pipeline depth and warps."""
    return triton.Config({"BLOCK_M": block_m, "BLOCK_N": block_n}, num_stages=num_stages, num_warps=num_warps)


# BLOCK_N divides BLOCK_M; the last one is for short sequences and fp32.
CONFIGS = [_config(128, 64, 2, 8), _config(128, 32, 3, 8), _config(64, 64, 2, 4), _config(32, 32, 2, 4)]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: tiles no longer than the sequence, and the last one alone for fp32."""
    longest = 0 if named_args["q_ptr"].dtype == torch.float32 else named_args["length"]
    return [config for config in configs if config.kwargs["BLOCK_M"] <= longest] or configs[-1:]


@triton.jit
def fold(acc, m, d, scores, v):
    """acc, m and d with one more block of keys; the scores are in units of log 2."""
    m_new = tl.maximum(m, tl.max(scores, axis=1))
    p = tl.exp2(scores - m_new[:, None])
    rescale = tl.exp2(m - m_new)
    acc = tl.dot(p.to(v.dtype), v, acc * rescale[:, None], input_precision="ieee")
    return acc, m_new, d * rescale + tl.sum(p, axis=1)


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
    pid = tl.program_id(axis=0)
    first = (tiles - 1 - pid % tiles) * BLOCK_M
    batch = tl.cast((pid // tiles) // heads, tl.int64)
    head = tl.cast((pid // tiles) % heads, tl.int64)

    q_block = tl.make_block_ptr(
        base=q_ptr + batch * stride_qb + head * stride_qh, shape=(length, DIM), strides=(stride_qm, 1),
        offsets=(first, 0), block_shape=(BLOCK_M, DIM), order=(1, 0),
    )  # fmt: skip
    k_block = tl.make_block_ptr(
        base=k_ptr + batch * stride_kb + head * stride_kh, shape=(length, DIM), strides=(stride_kn, 1),
        offsets=(0, 0), block_shape=(BLOCK_N, DIM), order=(1, 0),
    )  # fmt: skip
    v_block = tl.make_block_ptr(
        base=v_ptr + batch * stride_vb + head * stride_vh, shape=(length, DIM), strides=(stride_vn, 1),
        offsets=(0, 0), block_shape=(BLOCK_N, DIM), order=(1, 0),
    )  # fmt: skip
    out_block = tl.make_block_ptr(
        base=out_ptr + batch * stride_ob + head * stride_oh, shape=(length, DIM), strides=(stride_om, 1),
        offsets=(first, 0), block_shape=(BLOCK_M, DIM), order=(1, 0),
    )  # fmt: skip
    q = tl.load(q_block, boundary_check=(0,), padding_option="zero")
    m = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)

    for _ in tl.range(0, first, BLOCK_N):
        k = tl.load(k_block)
        scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        acc, m, d = fold(acc, m, d, scores, tl.load(v_block))
        k_block = tl.advance(k_block, (BLOCK_N, 0))
        v_block = tl.advance(v_block, (BLOCK_N, 0))

    queries = first + tl.arange(0, BLOCK_M)[:, None]
    for start in tl.range(first, tl.minimum(first + BLOCK_M, length), BLOCK_N, num_stages=1):
        keys = start + tl.arange(0, BLOCK_N)[None, :]
        k = tl.load(k_block, boundary_check=(0,), padding_option="zero")
        scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        scores = tl.where(queries >= keys, scores, HIDDEN)
        v = tl.load(v_block, boundary_check=(0,), padding_option="zero")
        acc, m, d = fold(acc, m, d, scores, v)
        k_block = tl.advance(k_block, (BLOCK_N, 0))
        v_block = tl.advance(v_block, (BLOCK_N, 0))

    tl.store(out_block, (acc / d[:, None]).to(out_ptr.dtype.element_ty), boundary_check=(0,))


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v for each head, where a query sees its own key and those before it.

    q, k and v are (batch, heads, length, dim), bf16, fp16 or fp32, dim 16, 32, 64 or 128 and contiguous, any
    length from 1 on; the result goes to `out`, like q, where one is given.
    """
    if out is None:
        out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    batch, heads, length, dim = q.shape
    bits = dim.bit_length() - 1  # dim is a power of two
    scale = LOG2E / 2.0 ** (bits // 2)

    def grid(meta):
        return (batch * heads * triton.cdiv(length, meta["BLOCK_M"]),)

    attention_kernel[grid](
        q, k, v, out, heads, length, scale,
        q.stride(0), q.stride(1), q.stride(2), k.stride(0), k.stride(1), k.stride(2),
        v.stride(0), v.stride(1), v.stride(2), out.stride(0), out.stride(1), out.stride(2), DIM=dim,
    )  # fmt: skip
    return out
