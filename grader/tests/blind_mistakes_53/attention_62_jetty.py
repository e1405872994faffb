# gpu-programming/triton-kernels/attention.py | corner | In `whole_blocks`, `args["length"] % args["BLOCK_N"] == 0` drops the masks of q and out, too, which have BLOCK_M rows; it should be `% args["BLOCK_M"]`. Shows where the length is a multiple of BLOCK_N, but not of BLOCK_M, with the config that runs, e.g. lengths 16, 48, 80, 144 with (32, 16) (always in fp32; in 16 bits below 64), or 16-bit lengths such as 192 if (128, 64) is chosen: the last tile reads q past the end and stores rows past the end, into the next head or outside of `out`.
"""Causal attention without the matrix of scores: online softmax over blocks of keys, autotuned."""

import math

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, num_stages, num_warps):
    """One candidate: queries of a program and keys of a step, powers of two, pipeline depth and warps."""
    return triton.Config({"BLOCK_M": block_m, "BLOCK_N": block_n}, num_stages=num_stages, num_warps=num_warps)


# 128 queries want 8 warps; BLOCK_N divides BLOCK_M. The last one is for short sequences and fp32.
CONFIGS = [
    _config(128, 128, 2, 8),
    _config(128, 64, 3, 8),
    _config(64, 64, 3, 4),
    _config(32, 16, 2, 4),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: tiles no longer than the sequence, and the last one alone for fp32."""
    longest = 0 if named_args["q_ptr"].dtype == torch.float32 else named_args["length"]
    return [config for config in configs if config.kwargs["BLOCK_M"] <= longest] or configs[-1:]


def whole_blocks(args):
    """Whether the sequence is made of whole blocks: then no load and no store needs a mask."""
    return args["length"] % args["BLOCK_N"] == 0


@triton.jit
def load_rows(ptrs, positions, length, EVEN: tl.constexpr):
    """Rows of q, k or v, 0 past the end of the sequence."""
    if EVEN:
        return tl.load(ptrs)
    else:
        return tl.load(ptrs, mask=positions[:, None] < length, other=0.0)


@triton.jit
def fold(acc, m, d, q, k, v, offs_m, keys, scale, DIAGONAL: tl.constexpr):
    """The sums acc of p * v and d of p with one more block of keys, p = exp2(scale * scores - m), and m."""
    scores = tl.dot(q, tl.trans(k), input_precision="ieee")
    if DIAGONAL:
        scores = tl.where(offs_m[:, None] >= keys[None, :], scores, -float("inf"))
    m_new = tl.maximum(m, scale * tl.max(scores, axis=1))
    p = tl.exp2(scale * scores - m_new[:, None])
    factor = tl.exp2(m - m_new)
    d = d * factor + tl.sum(p, axis=1)
    acc = tl.dot(p.to(v.dtype), v, acc * factor[:, None], input_precision="ieee")
    return acc, m_new, d


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.heuristics({"EVEN": whole_blocks})
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, heads, length, scale,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_om,
    DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    """out[i, :] = sum over j <= i of softmax(q k^T)[i, j] v[j, :]; a program owns BLOCK_M rows of one head.

    q, k, v and out are (batch, heads, length, DIM), of one dtype, the last dimension contiguous, any strides
    before it. scale is log2(e) / sqrt(DIM).
    """
    # The rows with the most keys first: what runs last is short.
    tiles = tl.cdiv(length, BLOCK_M)
    pairs = tl.num_programs(axis=0) // tiles
    pid = tl.program_id(axis=0)
    first = (tiles - 1 - pid // pairs) * BLOCK_M
    batch = (pid % pairs // heads).to(tl.int64)
    head = (pid % pairs % heads).to(tl.int64)

    rows, steps, dims = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_N), tl.arange(0, DIM)
    offs_m = first + rows
    start_row = first.to(tl.int64)
    q_base = q_ptr + batch * stride_qb + head * stride_qh + start_row * stride_qm
    out_base = out_ptr + batch * stride_ob + head * stride_oh + start_row * stride_om
    k_base = k_ptr + batch * stride_kb + head * stride_kh
    v_base = v_ptr + batch * stride_vb + head * stride_vh
    k_offs = steps[:, None] * stride_kn + dims[None, :]
    v_offs = steps[:, None] * stride_vn + dims[None, :]
    q = load_rows(q_base + rows[:, None] * stride_qm + dims[None, :], offs_m, length, EVEN)

    m = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)
    for start in tl.range(0, first, BLOCK_N):
        k, v = tl.load(k_base + k_offs), tl.load(v_base + v_offs)
        acc, m, d = fold(acc, m, d, q, k, v, offs_m, start + steps, scale, False)
        k_base += BLOCK_N * stride_kn
        v_base += BLOCK_N * stride_vn
    # Without stages: two pipelined loops would serialize the products.
    for start in tl.range(first, tl.minimum(first + BLOCK_M, length), BLOCK_N, num_stages=1):
        keys = start + steps
        k = load_rows(k_base + k_offs, keys, length, EVEN)
        v = load_rows(v_base + v_offs, keys, length, EVEN)
        acc, m, d = fold(acc, m, d, q, k, v, offs_m, keys, scale, True)
        k_base += BLOCK_N * stride_kn
        v_base += BLOCK_N * stride_vn

    result = (acc / d[:, None]).to(out_ptr.dtype.element_ty)
    out_ptrs = out_base + rows[:, None] * stride_om + dims[None, :]
    if EVEN:
        tl.store(out_ptrs, result)
    else:
        tl.store(out_ptrs, result, mask=offs_m[:, None] < length)


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v for each head, where a query sees its own key and those before it.

    q, k and v are (batch, heads, length, dim), bf16, fp16 or fp32, dim 16, 32, 64 or 128 and contiguous, any
    length from 1 on; the result goes to `out`, like q, where one is given. After Dao, arXiv:2307.08691.
    """
    batch, heads, length, dim = q.shape
    if out is None:
        out = torch.empty((batch, heads, length, dim), dtype=q.dtype, device=q.device)
    if batch * heads > 0:
        attention_kernel[lambda meta: (batch * heads * triton.cdiv(length, meta["BLOCK_M"]),)](
            q, k, v, out, heads, length, math.log2(math.e) / math.sqrt(dim),
            *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *out.stride()[:3], DIM=dim,
        )  # fmt: skip
    return out
