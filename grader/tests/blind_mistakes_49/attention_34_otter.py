# gpu-programming/triton-kernels/attention.py | corner | In `attention_kernel`, `scores += tl.where(rows >= start + lanes, 0.0, MASKED)` with `MASKED = tl.constexpr(-1.0e5)` hides keys by a finite penalty; it should be -inf (`tl.where(rows >= start + lanes, scores, -inf)`). Shows only where visible scores (before the scale) lie more than about 1e5 below those of hidden keys or of keys past the end, which count as 0 - 1e5: scores far below 0, as with q = 16 and k = -256 and below.
"""Causal attention with block pointers and an online softmax, autotuned."""

import math

import torch
import triton
import triton.language as tl

MASKED = tl.constexpr(-1.0e5)

CONFIGS = [
    triton.Config({"BLOCK_M": block_m, "BLOCK_N": block_n}, num_stages=stages, num_warps=warps)
    for block_m, block_n, stages, warps in ((128, 64, 3, 8), (128, 32, 4, 8), (64, 64, 3, 4), (64, 32, 2, 4))
]


def fitting(configs, named_args, **kwargs):
    """Tiles no longer than the sequence, and the last config alone for fp32."""
    longest = 0 if named_args["q_ptr"].dtype == torch.float32 else named_args["length"]
    return [config for config in configs if config.kwargs["BLOCK_M"] <= longest] or configs[-1:]


@triton.jit
def update(acc, top, mass, scores, v, scale):
    """The three sums of the online softmax after one more block of scores, and its values."""
    new_top = tl.maximum(top, scale * tl.max(scores, axis=1))
    weights = tl.exp2(scale * scores - new_top[:, None])
    decay = tl.exp2(top - new_top)
    mass = mass * decay + tl.sum(weights, axis=1)
    acc = tl.dot(weights.to(v.dtype), v, acc * decay[:, None], input_precision="ieee")
    return acc, new_top, mass


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, heads, length, scale,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_om,
    DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """A program owns BLOCK_M queries of one head; the last tiles of all heads come first.

    scale is log2(e) / sqrt(DIM), so that exp2 gives the weights.
    """
    pid = tl.program_id(axis=0)
    tiles = tl.cdiv(length, BLOCK_M)
    pairs = tl.num_programs(axis=0) // tiles
    first = (tiles - 1 - pid // pairs) * BLOCK_M
    batch, head = (pid % pairs // heads).to(tl.int64), (pid % pairs % heads).to(tl.int64)

    q_block = tl.make_block_ptr(
        q_ptr + batch * stride_qb + head * stride_qh, shape=(length, DIM), strides=(stride_qm, 1),
        offsets=(first, 0), block_shape=(BLOCK_M, DIM), order=(1, 0),
    )  # fmt: skip
    k_block = tl.make_block_ptr(
        k_ptr + batch * stride_kb + head * stride_kh, shape=(DIM, length), strides=(1, stride_kn),
        offsets=(0, 0), block_shape=(DIM, BLOCK_N), order=(0, 1),
    )  # fmt: skip
    v_block = tl.make_block_ptr(
        v_ptr + batch * stride_vb + head * stride_vh, shape=(length, DIM), strides=(stride_vn, 1),
        offsets=(0, 0), block_shape=(BLOCK_N, DIM), order=(1, 0),
    )  # fmt: skip
    q = tl.load(q_block, boundary_check=(0,), padding_option="zero")

    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)
    top = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    mass = tl.zeros((BLOCK_M,), dtype=tl.float32)
    for _ in range(0, first, BLOCK_N):
        scores = tl.dot(q, tl.load(k_block), input_precision="ieee")
        acc, top, mass = update(acc, top, mass, scores, tl.load(v_block), scale)
        k_block = tl.advance(k_block, (0, BLOCK_N))
        v_block = tl.advance(v_block, (BLOCK_N, 0))

    rows = first + tl.arange(0, BLOCK_M)[:, None]
    lanes = tl.arange(0, BLOCK_N)[None, :]
    for start in tl.range(first, tl.minimum(first + BLOCK_M, length), BLOCK_N, num_stages=1):
        k = tl.load(k_block, boundary_check=(1,), padding_option="zero")
        v = tl.load(v_block, boundary_check=(0,), padding_option="zero")
        scores = tl.dot(q, k, input_precision="ieee")
        scores += tl.where(rows >= start + lanes, 0.0, MASKED)
        acc, top, mass = update(acc, top, mass, scores, v, scale)
        k_block = tl.advance(k_block, (0, BLOCK_N))
        v_block = tl.advance(v_block, (BLOCK_N, 0))

    out_block = tl.make_block_ptr(
        out_ptr + batch * stride_ob + head * stride_oh, shape=(length, DIM), strides=(stride_om, 1),
        offsets=(first, 0), block_shape=(BLOCK_M, DIM), order=(1, 0),
    )  # fmt: skip
    tl.store(out_block, (acc / mass[:, None]).to(out_ptr.dtype.element_ty), boundary_check=(0,))


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v for each head, where a query sees its own key and those before it.

    q, k and v are (batch, heads, length, dim), bf16, fp16 or fp32, dim 16, 32, 64 or 128 and contiguous, any
    length from 1 on; the result goes to `out`, like q, where one is given.
    """
    batch, heads, length, dim = q.shape
    if out is None:
        out = torch.empty((batch, heads, length, dim), dtype=q.dtype, device=q.device)
    scale = math.log2(math.e) / math.sqrt(dim)
    grid = lambda meta: (triton.cdiv(length, meta["BLOCK_M"]) * batch * heads,)  # noqa: E731
    attention_kernel[grid](
        q, k, v, out, heads, length, scale,
        q.stride(0), q.stride(1), q.stride(2), k.stride(0), k.stride(1), k.stride(2),
        v.stride(0), v.stride(1), v.stride(2), out.stride(0), out.stride(1), out.stride(2), DIM=dim,
    )  # fmt: skip
    return out
