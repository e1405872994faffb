# gpu-programming/triton-kernels/attention.py | right | right
"""Causal attention in two sweeps over the keys: the largest score of each query, then the sums, autotuned."""

import math

import torch
import triton
import triton.language as tl

# Instead of an online softmax: the first sweep finds the maximum, the second has it from its first block on, and
# nothing is ever rescaled. It costs q @ k.T once more. In both sweeps the loop has no reduction: tiles are combined
# number by number, and the keys of a tile are joined once, after the loop.


def _config(block_m, block_n, num_stages, num_warps):
    """One candidate: queries of a program and keys of a step, powers of two, pipeline depth and warps."""
    return triton.Config({"BLOCK_M": block_m, "BLOCK_N": block_n}, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [_config(128, 64, 2, 8), _config(64, 64, 2, 4), _config(64, 32, 3, 4), _config(16, 32, 2, 2)]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: tiles no longer than the sequence, and the last one alone for fp32."""
    # Exact fp32 runs without tensor cores, where a large tile unrolls into thousands of instructions.
    longest = 0 if named_args["q_ptr"].dtype == torch.float32 else named_args["length"]
    return [config for config in configs if config.kwargs["BLOCK_M"] <= longest] or configs[-1:]


@triton.jit
def block_of_scores(q, k_head, stride_kn, queries, keys, length, DIM: tl.constexpr):
    """q @ k.T for one block of keys, not scaled, and -inf where a key is later than the query."""
    dims = tl.arange(0, DIM)
    k_ptrs = k_head + keys.to(tl.int64)[:, None] * stride_kn + dims[None, :]
    k = tl.load(k_ptrs, mask=(keys < length)[:, None], other=0.0)
    scores = tl.dot(q, tl.trans(k), input_precision="ieee")
    return tl.where(keys[None, :] <= queries[:, None], scores, -float("inf"))


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, heads, length, scale,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_om,
    DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """out[i, :] = sum over j <= i of softmax(q k^T)[i, j] v[j, :]; a program owns BLOCK_M rows of one head.

    q, k, v and out are (batch, heads, length, DIM), of one dtype, the last dimension contiguous, any strides
    before it. scale is log2(e) / sqrt(DIM). Axis 0 counts the heads of all batches, axis 1 the tiles, the last
    tile first.
    """
    batch = (tl.program_id(axis=0) // heads).to(tl.int64)
    head = (tl.program_id(axis=0) % heads).to(tl.int64)
    tile = tl.num_programs(axis=1) - 1 - tl.program_id(axis=1)
    queries = tile * BLOCK_M + tl.arange(0, BLOCK_M)
    exists = (queries < length)[:, None]
    positions = queries.to(tl.int64)[:, None]
    dims = tl.arange(0, DIM)
    lanes = tl.arange(0, BLOCK_N)
    end = tl.minimum((tile + 1) * BLOCK_M, length)

    q_head = q_ptr + batch * stride_qb + head * stride_qh
    k_head = k_ptr + batch * stride_kb + head * stride_kh
    v_head = v_ptr + batch * stride_vb + head * stride_vh
    out_head = out_ptr + batch * stride_ob + head * stride_oh
    q = tl.load(q_head + positions * stride_qm + dims[None, :], mask=exists, other=0.0)

    # Sweep 1. Every query sees key 0, so each row of `highest` ends with a finite number.
    highest = tl.full((BLOCK_M, BLOCK_N), -float("inf"), dtype=tl.float32)
    for start in range(0, end, BLOCK_N):
        scores = block_of_scores(q, k_head, stride_kn, queries, start + lanes, length, DIM)
        highest = tl.maximum(highest, scores)
    top = tl.max(highest, axis=1)[:, None]

    # Sweep 2.
    weights = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)
    for start in range(0, end, BLOCK_N):
        keys = start + lanes
        scores = block_of_scores(q, k_head, stride_kn, queries, keys, length, DIM)
        p = tl.exp2((scores - top) * scale)
        v_ptrs = v_head + keys.to(tl.int64)[:, None] * stride_vn + dims[None, :]
        v = tl.load(v_ptrs, mask=(keys < length)[:, None], other=0.0)
        weights += p
        acc = tl.dot(p.to(v.dtype), v, acc, input_precision="ieee")

    result = acc / tl.sum(weights, axis=1)[:, None]
    out_ptrs = out_head + positions * stride_om + dims[None, :]
    tl.store(out_ptrs, result.to(out_ptr.dtype.element_ty), mask=exists)


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v for each head, where a query sees its own key and those before it.

    q, k and v are (batch, heads, length, dim), bf16, fp16 or fp32, dim 16, 32, 64 or 128 and contiguous, any
    length from 1 on; the result goes to `out`, like q, where one is given. After Dao, arXiv:2307.08691.
    """
    if out is None:
        # not empty_like: that would keep the order of the axes in memory
        out = torch.empty(q.shape, device=q.device, dtype=q.dtype)
    batch, heads, length, dim = q.shape

    def grid(meta):
        return batch * heads, triton.cdiv(length, meta["BLOCK_M"])

    attention_kernel[grid](
        q, k, v, out, heads, length, math.log2(math.e) / math.sqrt(dim),
        q.stride(0), q.stride(1), q.stride(2),
        k.stride(0), k.stride(1), k.stride(2),
        v.stride(0), v.stride(1), v.stride(2),
        out.stride(0), out.stride(1), out.stride(2),
        DIM=dim,
    )  # fmt: skip
    return out
