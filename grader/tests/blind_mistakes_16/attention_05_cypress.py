# gpu-programming/triton-kernels/attention.py | error | In step the second product is tl.dot(p, v, ...) with p still in fp32: for fp16 and bf16 tensors Triton refuses operands of two dtypes and does not compile (fp32 works). It should be p.to(v.dtype).
"""Attention for one tile of queries at a time, causal, with running maximum and sum."""

import math

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, num_stages, num_warps):
    return triton.Config({"BLOCK_M": block_m, "BLOCK_N": block_n}, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 64, 3, 8),
    _config(64, 64, 3, 4),
    _config(64, 32, 4, 4),
    _config(32, 32, 3, 4),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: tiles no longer than the sequence, and the last one alone for fp32."""
    longest = 0 if named_args["q_ptr"].dtype == torch.float32 else named_args["length"]
    return [config for config in configs if config.kwargs["BLOCK_M"] <= longest] or configs[-1:]


@triton.jit
def rows_of(ptr, positions, stride, DIM: tl.constexpr):
    """Pointers to the vectors at some positions of one head."""
    return ptr + positions.to(tl.int64)[:, None] * stride + tl.arange(0, DIM)[None, :]


@triton.jit
def step(state_acc, state_m, state_d, q, k, v, visible, scale):
    """One block of keys more."""
    scores = tl.where(visible, tl.dot(q, tl.trans(k), input_precision="ieee") * scale, float("-inf"))
    m = tl.maximum(state_m, tl.max(scores, axis=1))
    p = tl.exp2(scores - m[:, None])
    old = tl.exp2(state_m - m)
    d = state_d * old + tl.sum(p, axis=1)
    acc = tl.dot(p, v, state_acc * old[:, None], input_precision="ieee")
    return acc, m, d


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, heads, length, scale,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_om,
    DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """A program owns BLOCK_M queries of one head and walks over the keys up to its last query."""
    pair = tl.program_id(axis=0).to(tl.int64)
    batch = pair // heads
    head = pair - batch * heads
    q_head = q_ptr + batch * stride_qb + head * stride_qh
    k_head = k_ptr + batch * stride_kb + head * stride_kh
    v_head = v_ptr + batch * stride_vb + head * stride_vh
    out_head = out_ptr + batch * stride_ob + head * stride_oh

    last_tile = tl.num_programs(axis=1) - 1
    begin = (last_tile - tl.program_id(axis=1)) * BLOCK_M
    positions = begin + tl.arange(0, BLOCK_M)
    q = tl.load(rows_of(q_head, positions, stride_qm, DIM), mask=positions[:, None] < length, other=0.0)

    m = tl.full((BLOCK_M,), float("-inf"), dtype=tl.float32)
    d = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)
    for n in range(0, tl.minimum(begin + BLOCK_M, length), BLOCK_N):
        keys = n + tl.arange(0, BLOCK_N)
        exists = keys[:, None] < length
        k = tl.load(rows_of(k_head, keys, stride_kn, DIM), mask=exists, other=0.0)
        v = tl.load(rows_of(v_head, keys, stride_vn, DIM), mask=exists, other=0.0)
        visible = positions[:, None] >= keys[None, :]
        acc, m, d = step(acc, m, d, q, k, v, visible, scale)

    result = (acc / d[:, None]).to(out_ptr.dtype.element_ty)
    tl.store(rows_of(out_head, positions, stride_om, DIM), result, mask=positions[:, None] < length)


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v for each head, where a query sees its own key and those before it."""
    batch, heads, length, dim = q.shape
    if out is None:
        out = torch.empty((batch, heads, length, dim), device=q.device, dtype=q.dtype)
    strides = [stride for x in (q, k, v, out) for stride in x.stride()[:3]]
    attention_kernel[lambda meta: (batch * heads, triton.cdiv(length, meta["BLOCK_M"]))](
        q, k, v, out, heads, length, math.log2(math.e) / math.sqrt(dim), *strides, DIM=dim
    )
    return out
