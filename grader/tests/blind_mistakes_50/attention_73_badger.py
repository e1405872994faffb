# gpu-programming/triton-kernels/attention.py | error | In walk `acc = tl.dot(p, v, acc * shrink[:, None], input_precision="ieee")` multiplies fp32 p with v of 16 bits; it should be `p.to(v.dtype)`. Compile error (both operands must have the same dtype) for fp16 and bf16; fp32 runs and is right.
"""Causal attention, one kernel with two phases as constexpr: past keys without a mask, then the diagonal."""

import math

import torch
import triton
import triton.language as tl


def _tile(block_m, block_n, stages, warps):
    return triton.Config({"BLOCK_M": block_m, "BLOCK_N": block_n}, num_stages=stages, num_warps=warps)


# BLOCK_N divides BLOCK_M, so that the past ends where a tile begins.
CONFIGS = [_tile(128, 128, 2, 8), _tile(128, 64, 3, 8), _tile(64, 64, 3, 4), _tile(64, 32, 2, 4)]


def fitting(configs, named_args, **kwargs):
    """The last config for fp32 and for short sequences, otherwise tiles that the sequence fills."""
    if named_args["q_ptr"].dtype == torch.float32 or named_args["length"] < 64:
        return configs[-1:]
    return [config for config in configs if config.kwargs["BLOCK_M"] <= named_args["length"]]


@triton.jit
def walk(
    acc, m, d, q, rows, k_ptr, v_ptr, stride_kn, stride_vn, low, high, length, scale,
    DIM: tl.constexpr, BLOCK_N: tl.constexpr, MASKED: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Fold the keys from low to high, BLOCK_N at a time, into acc, m and d."""
    lanes, dims = tl.arange(0, BLOCK_N), tl.arange(0, DIM)
    k_now = k_ptr + low.to(tl.int64) * stride_kn
    v_now = v_ptr + low.to(tl.int64) * stride_vn
    k_offs = dims[:, None] + lanes[None, :] * stride_kn  # k comes transposed, (DIM, BLOCK_N)
    v_offs = lanes[:, None] * stride_vn + dims[None, :]
    for start in tl.range(low, high, BLOCK_N, num_stages=STAGES):
        keys = start + lanes
        if MASKED:
            k = tl.load(k_now + k_offs, mask=(keys < length)[None, :], other=0.0)
            v = tl.load(v_now + v_offs, mask=(keys < length)[:, None], other=0.0)
        else:
            k = tl.load(k_now + k_offs)
            v = tl.load(v_now + v_offs)
        scores = tl.dot(q, k, input_precision="ieee") * scale
        if MASKED:
            scores = tl.where(rows[:, None] >= keys[None, :], scores, -float("inf"))
        top = tl.maximum(m, tl.max(scores, axis=1))
        shrink = tl.exp2(m - top)
        p = tl.exp2(scores - top[:, None])
        d = d * shrink + tl.sum(p, axis=1)
        acc = tl.dot(p, v, acc * shrink[:, None], input_precision="ieee")
        m = top
        k_now += BLOCK_N * stride_kn
        v_now += BLOCK_N * stride_vn
    return acc, m, d


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.heuristics({"STAGES": lambda args: 3 if args["BLOCK_N"] == 64 else 2})
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, heads, pairs, length, scale,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_om,
    DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """A program owns BLOCK_M queries of one of the `pairs` of batch and head; the last queries come first."""
    pid = tl.program_id(axis=0)
    batch, head = (pid % pairs // heads).to(tl.int64), (pid % pairs % heads).to(tl.int64)
    first = (tl.cdiv(length, BLOCK_M) - 1 - pid // pairs) * BLOCK_M
    rows = first + tl.arange(0, BLOCK_M)
    dims = tl.arange(0, DIM)
    exists = (rows < length)[:, None]
    k_ptr += batch * stride_kb + head * stride_kh
    v_ptr += batch * stride_vb + head * stride_vh
    q_ptr += batch * stride_qb + head * stride_qh
    q = tl.load(q_ptr + rows[:, None].to(tl.int64) * stride_qm + dims[None, :], mask=exists, other=0.0)

    m = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)
    begin = first * 0
    last = tl.minimum(first + BLOCK_M, length)
    acc, m, d = walk(
        acc, m, d, q, rows, k_ptr, v_ptr, stride_kn, stride_vn, begin, first, length, scale,
        DIM, BLOCK_N, False, STAGES,
    )  # fmt: skip
    acc, m, d = walk(
        acc, m, d, q, rows, k_ptr, v_ptr, stride_kn, stride_vn, first, last, length, scale,
        DIM, BLOCK_N, True, 1,
    )  # fmt: skip

    out_ptr += batch * stride_ob + head * stride_oh
    y = (acc / d[:, None]).to(out_ptr.dtype.element_ty)
    tl.store(out_ptr + rows[:, None].to(tl.int64) * stride_om + dims[None, :], y, mask=exists)


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v of each head, causal; q, k and v are (batch, heads, length, dim)."""
    if out is None:
        out = torch.empty(q.shape, device=q.device, dtype=q.dtype)
    batch, heads, length, dim = q.shape

    def grid(meta):
        return (batch * heads * triton.cdiv(length, meta["BLOCK_M"]),)

    attention_kernel[grid](
        q, k, v, out, heads, batch * heads, length, math.log2(math.e) / math.sqrt(dim),
        q.stride(0), q.stride(1), q.stride(2), k.stride(0), k.stride(1), k.stride(2),
        v.stride(0), v.stride(1), v.stride(2), out.stride(0), out.stride(1), out.stride(2), DIM=dim,
    )  # fmt: skip
    return out
