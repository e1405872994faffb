# gpu-programming/triton-kernels/attention.py | wrong everywhere | in attention the scale is `math.log(2.0) / math.sqrt(dim)`, 0.693 in place of log2(e) = 1.4427, for an exp2: the weights are 2^(0.693 s), that is exp(0.48 s), much too flat; wrong wherever a query sees more than one key and the scores differ (right for length 1); should be math.log2(math.e) / math.sqrt(dim)
"""Causal attention, all blocks of keys in one loop under one mask, autotuned."""

import math

import torch
import triton
import triton.language as tl


def candidates(*tiles):
    return [
        triton.Config({"BLOCK_M": rows, "BLOCK_N": keys}, num_stages=stages, num_warps=warps)
        for rows, keys, stages, warps in tiles
    ]


CONFIGS = candidates((128, 64, 3, 8), (128, 32, 3, 8), (64, 64, 2, 4), (64, 32, 3, 4), (32, 32, 2, 4))


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: tiles no longer than the sequence, and the last one alone for fp32."""
    longest = 0 if named_args["q_ptr"].dtype == torch.float32 else named_args["length"]
    return [config for config in configs if config.kwargs["BLOCK_M"] <= longest] or configs[-1:]


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr,
    heads, sequences, length, scale,
    stride_qb, stride_qh, stride_qm,
    stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn,
    stride_ob, stride_oh, stride_om,
    DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """All heads of the last tile come first, then all heads of the tile before it."""
    pid = tl.program_id(axis=0)
    number = pid % sequences
    start = (tl.cdiv(length, BLOCK_M) - 1 - pid // sequences) * BLOCK_M
    b = (number // heads).to(tl.int64)
    h = (number % heads).to(tl.int64)
    origin = start.to(tl.int64)

    lanes_m, lanes_n, dims = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_N), tl.arange(0, DIM)
    queries = start + lanes_m
    live = queries[:, None] < length

    q_ptr += b * stride_qb + h * stride_qh + origin * stride_qm
    out_ptr += b * stride_ob + h * stride_oh + origin * stride_om
    k_ptr += b * stride_kb + h * stride_kh
    v_ptr += b * stride_vb + h * stride_vh
    k_offs = dims[:, None] + lanes_n[None, :] * stride_kn
    v_offs = lanes_n[:, None] * stride_vn + dims[None, :]

    q = tl.load(q_ptr + lanes_m[:, None] * stride_qm + dims[None, :], mask=live, other=0.0)
    m = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)

    for begin in range(0, tl.minimum(start + BLOCK_M, length), BLOCK_N):
        keys = begin + lanes_n
        k = tl.load(k_ptr + k_offs, mask=keys[None, :] < length, other=0.0)
        v = tl.load(v_ptr + v_offs, mask=keys[:, None] < length, other=0.0)
        s = tl.dot(q, k, input_precision="ieee")
        s = tl.where(queries[:, None] >= keys[None, :], s, -float("inf"))
        top = tl.maximum(m, scale * tl.max(s, axis=1))
        p = tl.exp2(scale * s - top[:, None])
        kept = tl.exp2(m - top)
        d = d * kept + tl.sum(p, axis=1)
        acc = tl.dot(p.to(v.dtype), v, acc * kept[:, None], input_precision="ieee")
        m = top
        k_ptr += BLOCK_N * stride_kn
        v_ptr += BLOCK_N * stride_vn

    tl.store(out_ptr + lanes_m[:, None] * stride_om + dims[None, :], acc / d[:, None], mask=live)


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v for each head, where a query sees its own key and those before it."""
    batch, heads, length, dim = q.shape
    if out is None:
        out = torch.empty((batch, heads, length, dim), dtype=q.dtype, device=q.device)
    sequences = batch * heads
    scale = math.log(2.0) / math.sqrt(dim)
    grid = lambda meta: (sequences * triton.cdiv(length, meta["BLOCK_M"]),)
    attention_kernel[grid](
        q, k, v, out, heads, sequences, length, scale,
        q.stride(0), q.stride(1), q.stride(2),
        k.stride(0), k.stride(1), k.stride(2),
        v.stride(0), v.stride(1), v.stride(2),
        out.stride(0), out.stride(1), out.stride(2),
        DIM=dim,
    )  # fmt: skip
    return out
