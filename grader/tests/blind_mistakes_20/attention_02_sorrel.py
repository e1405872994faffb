# gpu-programming/triton-kernels/attention.py | right | right
"""Causal attention, upside down: keys go down, queries go right, and the keys are walked from the diagonal back."""

import math

import torch
import triton
import triton.language as tl


def _configs():
    shapes = [(128, 64, 3, 8), (64, 64, 3, 4), (64, 32, 3, 4), (32, 32, 2, 4), (16, 16, 2, 2)]
    return [triton.Config({"BLOCK_M": m, "BLOCK_N": n}, num_stages=s, num_warps=w) for m, n, s, w in shapes]


CONFIGS = _configs()


def fitting(configs, named_args, **kwargs):
    """Tiles no longer than the sequence; one of the two smallest for fp32."""
    length = named_args["length"]
    if named_args["q_ptr"].dtype == torch.float32:
        return configs[-2:-1] if length >= 32 else configs[-1:]
    return [config for config in configs if config.kwargs["BLOCK_M"] <= length] or configs[-1:]


@triton.jit
def head_of(ptr, batch, head, stride_b, stride_h):
    return ptr + batch * stride_b + head * stride_h


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, heads, length, scale,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_om,
    DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """The transposed result of BLOCK_M queries of one head: v.T @ softmax(k @ q.T), with the softmax along axis 0."""
    pid = tl.program_id(0)
    tiles = tl.cdiv(length, BLOCK_M)
    tile = tiles - 1 - pid % tiles
    batch = (pid // tiles // heads).to(tl.int64)
    head = (pid // tiles % heads).to(tl.int64)

    dims = tl.arange(0, DIM)
    queries = (tile * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)
    exists = (queries < length)[None, :]
    q_head = head_of(q_ptr, batch, head, stride_qb, stride_qh)
    k_head = head_of(k_ptr, batch, head, stride_kb, stride_kh)
    v_head = head_of(v_ptr, batch, head, stride_vb, stride_vh)
    out_head = head_of(out_ptr, batch, head, stride_ob, stride_oh)
    q_t = tl.load(q_head + queries[None, :] * stride_qm + dims[:, None], mask=exists, other=0.0)

    # From the diagonal back, a query may see no key of the first blocks. A finite start instead of -inf: a
    # hidden key has exp2(-inf - top) = 0 also then, and the first real maximum shrinks the empty sums by 0.
    top = tl.full((BLOCK_M,), -1.0e38, dtype=tl.float32)
    weight = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((DIM, BLOCK_M), dtype=tl.float32)
    blocks = tl.cdiv(tl.minimum(length, (tile + 1) * BLOCK_M), BLOCK_N)
    for i in range(0, blocks):
        keys = ((blocks - 1 - i) * BLOCK_N + tl.arange(0, BLOCK_N)).to(tl.int64)
        k = tl.load(
            k_head + keys[:, None] * stride_kn + dims[None, :], mask=(keys < length)[:, None], other=0.0
        )
        v_t = tl.load(
            v_head + keys[None, :] * stride_vn + dims[:, None], mask=(keys < length)[None, :], other=0.0
        )
        scores = tl.dot(k, q_t, input_precision="ieee") * scale
        hidden = (keys[:, None] > queries[None, :]) | (keys >= length)[:, None]
        scores = tl.where(hidden, -float("inf"), scores)
        higher = tl.maximum(top, tl.max(scores, axis=0))
        p = tl.exp2(scores - higher[None, :])
        shrink = tl.exp2(top - higher)
        weight = weight * shrink + tl.sum(p, axis=0)
        acc = tl.dot(v_t, p.to(v_t.dtype), acc * shrink[None, :], input_precision="ieee")
        top = higher

    result = acc / weight[None, :]
    tl.store(
        out_head + queries[None, :] * stride_om + dims[:, None], result.to(out_ptr.dtype.element_ty), mask=exists
    )


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v for each head, where a query sees its own key and those before it."""
    batch, heads, length, dim = q.shape
    if out is None:
        out = torch.empty((batch, heads, length, dim), device=q.device, dtype=q.dtype)

    def grid(meta):
        return (batch * heads * triton.cdiv(length, meta["BLOCK_M"]),)

    strides = []
    for tensor in (q, k, v, out):
        strides.extend([tensor.stride(0), tensor.stride(1), tensor.stride(2)])
    attention_kernel[grid](q, k, v, out, heads, length, math.log2(math.e) / math.sqrt(dim), *strides, DIM=dim)
    return out
