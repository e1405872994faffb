# gpu-programming/triton-kernels/attention.py | right | Correct in every respect; unusual is that one masked loop takes all blocks of keys from 0 to the diagonal without a separate function, with `tl.exp` to the base e, and that keys are loaded as (BLOCK_N, DIM) and transposed by `tl.trans`.
"""Causal attention in a single loop over the keys, autotuned."""

import math

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, num_stages, num_warps):
    """One candidate: queries of a program and keys of a step, powers of two, pipeline depth and warps."""
    return triton.Config({"BLOCK_M": block_m, "BLOCK_N": block_n}, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 64, 3, 8),
    _config(64, 64, 2, 4),
    _config(64, 32, 3, 4),
    _config(32, 32, 2, 4),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: tiles no longer than the sequence, and the last one alone for fp32."""
    # Exact fp32 runs without tensor cores, where a large tile unrolls into thousands of instructions.
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
    """out[i, :] = sum over j <= i of softmax(scale * q k^T)[i, j] v[j, :]; scale is 1 / sqrt(DIM)."""
    # Programs of one tile lie side by side for all heads, the tiles with the most keys first.
    tiles = tl.cdiv(length, BLOCK_M)
    pairs = tl.num_programs(0) // tiles
    pid = tl.program_id(0)
    first = (tiles - 1 - pid // pairs) * BLOCK_M
    pair = pid % pairs
    batch = (pair // heads).to(tl.int64)
    head = (pair % heads).to(tl.int64)

    dims = tl.arange(0, DIM)
    queries = (first + tl.arange(0, BLOCK_M)).to(tl.int64)
    query_exists = queries[:, None] < length
    q_head = q_ptr + batch * stride_qb + head * stride_qh
    k_head = k_ptr + batch * stride_kb + head * stride_kh
    v_head = v_ptr + batch * stride_vb + head * stride_vh
    out_head = out_ptr + batch * stride_ob + head * stride_oh
    q = tl.load(q_head + queries[:, None] * stride_qm + dims[None, :], mask=query_exists, other=0.0)

    highest = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    weight = tl.zeros((BLOCK_M,), dtype=tl.float32)
    total = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)
    lanes = tl.arange(0, BLOCK_N).to(tl.int64)
    for start in range(0, min(first + BLOCK_M, length), BLOCK_N):
        keys = start + lanes
        key_exists = keys[:, None] < length
        k = tl.load(k_head + keys[:, None] * stride_kn + dims[None, :], mask=key_exists, other=0.0)
        scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        # Every query sees key 0 in the first block, so the maximum is finite from then on.
        scores = tl.where(queries[:, None] >= keys[None, :], scores, -float("inf"))
        above = tl.maximum(highest, tl.max(scores, axis=1))
        rescale = tl.exp(highest - above)
        p = tl.exp(scores - above[:, None])
        weight = weight * rescale + tl.sum(p, axis=1)
        v = tl.load(v_head + keys[:, None] * stride_vn + dims[None, :], mask=key_exists, other=0.0)
        total = tl.dot(p.to(v.dtype), v, total * rescale[:, None], input_precision="ieee")
        highest = above

    result = total / weight[:, None]
    target = out_head + queries[:, None] * stride_om + dims[None, :]
    tl.store(target, result.to(out_ptr.dtype.element_ty), mask=query_exists)


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v for each head, where a query sees its own key and those before it.

    q, k and v are (batch, heads, length, dim), bf16, fp16 or fp32, dim 16, 32, 64 or 128 and contiguous, any
    length from 1 on; the result goes to `out`, like q, where one is given. After Dao, arXiv:2307.08691.
    """
    if out is None:
        out = torch.empty(q.shape, device=q.device, dtype=q.dtype)
    batch, heads, length, dim = q.shape
    grid = lambda meta: (batch * heads * triton.cdiv(length, meta["BLOCK_M"]),)  # noqa: E731
    attention_kernel[grid](
        q, k, v, out, heads, length, 1.0 / math.sqrt(dim),
        q.stride(0), q.stride(1), q.stride(2),
        k.stride(0), k.stride(1), k.stride(2),
        v.stride(0), v.stride(1), v.stride(2),
        out.stride(0), out.stride(1), out.stride(2),
        DIM=dim,
    )  # fmt: skip
    return out
