# gpu-programming/triton-kernels/attention.py | corner | The last config, `_config(32, 64, 2, 4)`, the only one for fp32 and short sequences, has BLOCK_N = 64 which does not divide BLOCK_M = 32, so the loop without masks runs past the first query of every second tile; it should be for example `_config(32, 32, 2, 4)`.
"""Flash attention, causal, forward only."""

import math

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, num_stages, num_warps):
    """One candidate: queries of a program and keys of a step, powers of two, pipeline depth and warps."""
    return triton.Config({"BLOCK_M": block_m, "BLOCK_N": block_n}, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 128, 2, 8),
    _config(128, 64, 3, 8),
    _config(64, 64, 3, 4),
    _config(64, 32, 4, 4),
    _config(32, 64, 2, 4),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: tiles no longer than the sequence, and the last one alone for fp32."""
    # Exact fp32 runs without tensor cores, where a large tile unrolls into thousands of instructions.
    longest = 0 if named_args["q_ptr"].dtype == torch.float32 else named_args["length"]
    return [config for config in configs if config.kwargs["BLOCK_M"] <= longest] or configs[-1:]


@triton.jit
def softmax_step(scores, acc, row_max, row_sum):
    """Online softmax in base 2: the weights of these scores, and what was summed so far on the new scale."""
    new_max = tl.maximum(row_max, tl.max(scores, 1))
    alpha = tl.exp2(row_max - new_max)
    weights = tl.exp2(scores - new_max[:, None])
    return weights, acc * alpha[:, None], new_max, row_sum * alpha + tl.sum(weights, 1)


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, heads, length, scale,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_om,
    DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    tiles = tl.cdiv(length, BLOCK_M)
    pid = tl.program_id(0)
    # the last tile of each head has the most keys, so it comes first
    tile = tiles - 1 - pid % tiles
    off_b = (pid // tiles // heads).to(tl.int64)
    off_h = (pid // tiles % heads).to(tl.int64)

    q_ptr += off_b * stride_qb + off_h * stride_qh
    k_ptr += off_b * stride_kb + off_h * stride_kh
    v_ptr += off_b * stride_vb + off_h * stride_vh
    out_ptr += off_b * stride_ob + off_h * stride_oh

    begin = tile * BLOCK_M
    offs_m = (begin + tl.arange(0, BLOCK_M)).to(tl.int64)
    offs_n = tl.arange(0, BLOCK_N).to(tl.int64)
    offs_d = tl.arange(0, DIM)
    q = tl.load(q_ptr + offs_m[:, None] * stride_qm + offs_d[None, :], mask=offs_m[:, None] < length, other=0.0)

    row_max = tl.full((BLOCK_M,), float("-inf"), tl.float32)
    row_sum = tl.zeros((BLOCK_M,), tl.float32)
    acc = tl.zeros((BLOCK_M, DIM), tl.float32)

    # 1. everything to the left of the tile: visible to all of its queries
    for start in range(0, begin, BLOCK_N):
        kt = tl.load(k_ptr + (start + offs_n)[None, :] * stride_kn + offs_d[:, None])
        v = tl.load(v_ptr + (start + offs_n)[:, None] * stride_vn + offs_d[None, :])
        scores = tl.dot(q, kt, input_precision="ieee") * scale
        weights, acc, row_max, row_sum = softmax_step(scores, acc, row_max, row_sum)
        acc = tl.dot(weights.to(v.dtype), v, acc, input_precision="ieee")

    # 2. the blocks on the diagonal
    end = tl.minimum(begin + BLOCK_M, length)
    for start in tl.range(begin, end, BLOCK_N, num_stages=1):
        pos = start + offs_n
        kt = tl.load(k_ptr + pos[None, :] * stride_kn + offs_d[:, None], mask=pos[None, :] < length, other=0.0)
        v = tl.load(v_ptr + pos[:, None] * stride_vn + offs_d[None, :], mask=pos[:, None] < length, other=0.0)
        scores = tl.dot(q, kt, input_precision="ieee") * scale
        scores = tl.where(pos[None, :] <= offs_m[:, None], scores, float("-inf"))
        weights, acc, row_max, row_sum = softmax_step(scores, acc, row_max, row_sum)
        acc = tl.dot(weights.to(v.dtype), v, acc, input_precision="ieee")

    result = acc / row_sum[:, None]
    tl.store(
        out_ptr + offs_m[:, None] * stride_om + offs_d[None, :],
        result.to(out_ptr.dtype.element_ty),
        mask=offs_m[:, None] < length,
    )


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v for each head, where a query sees its own key and those before it."""
    batch, heads, length, dim = q.shape
    if out is None:
        out = torch.empty((batch, heads, length, dim), device=q.device, dtype=q.dtype)
    scale = math.log2(math.e) / math.sqrt(dim)
    grid = lambda meta: (triton.cdiv(length, meta["BLOCK_M"]) * batch * heads,)  # noqa: E731
    attention_kernel[grid](
        q, k, v, out, heads, length, scale,
        q.stride(0), q.stride(1), q.stride(2),
        k.stride(0), k.stride(1), k.stride(2),
        v.stride(0), v.stride(1), v.stride(2),
        out.stride(0), out.stride(1), out.stride(2),
        DIM=dim,
    )  # fmt: skip
    return out
