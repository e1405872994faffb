# gpu-programming/triton-kernels/attention.py | error | `total = 0.0` in `attention_kernel` should be `tl.zeros((BLOCK_M,), dtype=tl.float32)`: in the loops the scalar becomes a block, and Triton does not compile a loop-carried variable that changes its type. Compile error in all cases on a GPU (and when compiled for one); the interpreter alone does not notice, and gives right values.
"""Causal attention with block pointers: scores live for one block of keys only."""

import math

import torch
import triton
import triton.language as tl

LOG2E = math.log2(math.e)

CONFIGS = [
    triton.Config({"BLOCK_M": 128, "BLOCK_N": 64}, num_stages=3, num_warps=8),
    triton.Config({"BLOCK_M": 128, "BLOCK_N": 64}, num_stages=2, num_warps=8),
    triton.Config({"BLOCK_M": 64, "BLOCK_N": 64}, num_stages=3, num_warps=4),
    triton.Config({"BLOCK_M": 64, "BLOCK_N": 32}, num_stages=2, num_warps=4),
]


def fitting(configs, named_args, **kwargs):
    """Tiles no longer than the sequence, or the smallest; for fp32, which has no tensor cores, only that."""
    small = configs[-1:]
    if named_args["q_ptr"].dtype == torch.float32:
        return small
    return [config for config in configs if config.kwargs["BLOCK_M"] <= named_args["length"]] or small


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, heads, length, scale,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_om,
    DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """A program owns BLOCK_M queries of one head. The keys are read as columns, (DIM, length)."""
    tiles = tl.cdiv(length, BLOCK_M)
    pid = tl.program_id(axis=0)
    start_m = (tiles - 1 - pid % tiles) * BLOCK_M
    batch, head = (pid // tiles // heads).to(tl.int64), (pid // tiles % heads).to(tl.int64)
    q_block = tl.make_block_ptr(
        base=q_ptr + batch * stride_qb + head * stride_qh, shape=(length, DIM), strides=(stride_qm, 1),
        offsets=(start_m, 0), block_shape=(BLOCK_M, DIM), order=(1, 0),
    )  # fmt: skip
    k_block = tl.make_block_ptr(
        base=k_ptr + batch * stride_kb + head * stride_kh, shape=(DIM, length), strides=(1, stride_kn),
        offsets=(0, 0), block_shape=(DIM, BLOCK_N), order=(0, 1),
    )  # fmt: skip
    v_block = tl.make_block_ptr(
        base=v_ptr + batch * stride_vb + head * stride_vh, shape=(length, DIM), strides=(stride_vn, 1),
        offsets=(0, 0), block_shape=(BLOCK_N, DIM), order=(1, 0),
    )  # fmt: skip
    out_block = tl.make_block_ptr(
        base=out_ptr + batch * stride_ob + head * stride_oh, shape=(length, DIM), strides=(stride_om, 1),
        offsets=(start_m, 0), block_shape=(BLOCK_M, DIM), order=(1, 0),
    )  # fmt: skip

    q = tl.load(q_block, boundary_check=(0,), padding_option="zero")
    top = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)
    total = 0.0

    # All of these keys come before all of the queries.
    for _ in range(0, start_m, BLOCK_N):
        k = tl.load(k_block)
        v = tl.load(v_block)
        scores = tl.dot(q, k, input_precision="ieee")
        new_top = tl.maximum(top, tl.max(scores, axis=1) * scale)
        p = tl.exp2(scores * scale - new_top[:, None])
        rescale = tl.exp2(top - new_top)
        total = total * rescale + tl.sum(p, axis=1)
        acc = tl.dot(p.to(v.dtype), v, acc * rescale[:, None], input_precision="ieee")
        top = new_top
        k_block = tl.advance(k_block, (0, BLOCK_N))
        v_block = tl.advance(v_block, (BLOCK_N, 0))

    # The diagonal goes through these.
    queries = start_m + tl.arange(0, BLOCK_M)
    for start_n in tl.range(start_m, tl.minimum(start_m + BLOCK_M, length), BLOCK_N, num_stages=1):
        k = tl.load(k_block, boundary_check=(1,), padding_option="zero")
        v = tl.load(v_block, boundary_check=(0,), padding_option="zero")
        keys = start_n + tl.arange(0, BLOCK_N)
        scores = tl.dot(q, k, input_precision="ieee")
        scores = tl.where(queries[:, None] >= keys[None, :], scores, -float("inf"))
        new_top = tl.maximum(top, tl.max(scores, axis=1) * scale)
        p = tl.exp2(scores * scale - new_top[:, None])
        rescale = tl.exp2(top - new_top)
        total = total * rescale + tl.sum(p, axis=1)
        acc = tl.dot(p.to(v.dtype), v, acc * rescale[:, None], input_precision="ieee")
        top = new_top
        k_block = tl.advance(k_block, (0, BLOCK_N))
        v_block = tl.advance(v_block, (BLOCK_N, 0))

    result = acc / total[:, None]
    tl.store(out_block, result.to(out_ptr.dtype.element_ty), boundary_check=(0,))


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v for each head; query i sees keys 0 to i.

    q, k, v and out are (batch, heads, length, dim), the last axis contiguous, the others with any strides.
    """
    if out is None:
        out = torch.empty_like(q, memory_format=torch.contiguous_format)
    batch, heads, length, dim = q.shape
    attention_kernel[lambda meta: (triton.cdiv(length, meta["BLOCK_M"]) * heads * batch,)](
        q, k, v, out, heads, length, LOG2E / math.sqrt(dim),
        *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *out.stride()[:3],
        DIM=dim,
    )  # fmt: skip
    return out
