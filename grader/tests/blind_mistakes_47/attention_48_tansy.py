# gpu-programming/triton-kernels/attention.py | corner | In `place`, `tiles - 1 - inside // GROUP` should be `tiles - 1 - inside // width`: in the last, narrower group of heads some tiles have two programs (which store the same bits) and others none. Shows where batch * heads is more than 8 and no multiple of 8, with more than one tile a sequence: (3, 11, 17, 16), where queries 0 to 15 of the last head stay unwritten. All other cases are right.
"""Causal attention without the matrix of scores: online softmax over blocks of keys, heads in groups, autotuned."""

import math

import torch
import triton
import triton.language as tl

TOGETHER = 8  # heads whose keys and values share the L2 cache


def _config(block_m, block_n, num_stages, num_warps):
    """One candidate: queries of a program and keys of a step, powers of two, pipeline depth and warps."""
    return triton.Config({"BLOCK_M": block_m, "BLOCK_N": block_n}, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [_config(128, 128, 2, 8), _config(128, 64, 3, 8), _config(64, 64, 3, 4), _config(16, 16, 2, 4)]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: tiles no longer than the sequence, and the last one alone for fp32."""
    longest = 0 if named_args["q_ptr"].dtype == torch.float32 else named_args["length"]
    return [config for config in configs if config.kwargs["BLOCK_M"] <= longest] or configs[-1:]


@triton.jit
def place(pairs, tiles, GROUP: tl.constexpr):
    """Head and tile of this program: GROUP heads run side by side, each with its longest tiles first.

    The last group has the heads that are left, which may be fewer.
    """
    pid = tl.program_id(axis=0)
    first_pair = pid // (GROUP * tiles) * GROUP
    width = tl.minimum(pairs - first_pair, GROUP)
    inside = pid % (GROUP * tiles)
    return first_pair + inside % width, tiles - 1 - inside // GROUP


@triton.jit
def fold(acc, m, d, q, k, v, visible, scale, DIAGONAL: tl.constexpr):
    """acc, m and d with one more block of keys; visible says which scores count where DIAGONAL."""
    scores = tl.dot(q, tl.trans(k), input_precision="ieee")
    if DIAGONAL:
        scores = tl.where(visible, scores, -float("inf"))
    m_new = tl.maximum(m, tl.max(scores, axis=1) * scale)
    p = tl.exp2(scores * scale - m_new[:, None])
    alpha = tl.exp2(m - m_new)
    d = d * alpha + tl.sum(p, axis=1)
    acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None], input_precision="ieee")
    return acc, m_new, d


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, pairs, heads, length, scale,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_om,
    DIM: tl.constexpr, GROUP: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """out[i, :] = sum over j <= i of softmax(q k^T)[i, j] v[j, :]; a program owns BLOCK_M rows of one head.

    pairs is batch * heads, scale is log2(e) / sqrt(DIM).
    """
    pair, tile = place(pairs, tl.cdiv(length, BLOCK_M), GROUP)
    batch, head = (pair // heads).to(tl.int64), (pair % heads).to(tl.int64)
    first = tile * BLOCK_M

    local_m, local_n, dims = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_N), tl.arange(0, DIM)
    begin = first.to(tl.int64)
    exists = (first + local_m < length)[:, None]
    q_ptr += batch * stride_qb + head * stride_qh + begin * stride_qm
    q = tl.load(q_ptr + local_m[:, None] * stride_qm + dims[None, :], mask=exists, other=0.0)

    # One pointer that moves through the keys, and fixed blocks of offsets.
    k_ptr += batch * stride_kb + head * stride_kh
    v_ptr += batch * stride_vb + head * stride_vh
    k_offs = local_n[:, None] * stride_kn + dims[None, :]
    v_offs = local_n[:, None] * stride_vn + dims[None, :]

    m = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)
    for _ in range(0, first, BLOCK_N):
        k = tl.load(k_ptr + k_offs)
        v = tl.load(v_ptr + v_offs)
        acc, m, d = fold(acc, m, d, q, k, v, None, scale, DIAGONAL=False)
        k_ptr += BLOCK_N * stride_kn
        v_ptr += BLOCK_N * stride_vn
    for start in tl.range(first, tl.minimum(first + BLOCK_M, length), BLOCK_N, num_stages=1):
        inside = (start + local_n < length)[:, None]
        k = tl.load(k_ptr + k_offs, mask=inside, other=0.0)
        v = tl.load(v_ptr + v_offs, mask=inside, other=0.0)
        visible = (first + local_m)[:, None] >= (start + local_n)[None, :]
        acc, m, d = fold(acc, m, d, q, k, v, visible, scale, DIAGONAL=True)
        k_ptr += BLOCK_N * stride_kn
        v_ptr += BLOCK_N * stride_vn

    out_ptr += batch * stride_ob + head * stride_oh + begin * stride_om
    result = (acc / d[:, None]).to(out_ptr.dtype.element_ty)
    tl.store(out_ptr + local_m[:, None] * stride_om + dims[None, :], result, mask=exists)


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v for each head, where a query sees its own key and those before it.

    q, k and v are (batch, heads, length, dim), bf16, fp16 or fp32, dim 16, 32, 64 or 128 and contiguous, any
    length from 1 on; the result goes to `out`, like q, where one is given. After Dao, arXiv:2307.08691.
    """
    batch, heads, length, dim = q.shape
    if out is None:
        out = torch.empty((batch, heads, length, dim), dtype=q.dtype, device=q.device)
    pairs = batch * heads

    def grid(meta):
        return (triton.cdiv(length, meta["BLOCK_M"]) * pairs,)

    attention_kernel[grid](
        q, k, v, out, pairs, heads, length, math.log2(math.e) / math.sqrt(dim),
        q.stride(0), q.stride(1), q.stride(2), k.stride(0), k.stride(1), k.stride(2),
        v.stride(0), v.stride(1), v.stride(2), out.stride(0), out.stride(1), out.stride(2),
        DIM=dim, GROUP=min(TOGETHER, pairs),
    )  # fmt: skip
    return out
