# gpu-programming/triton-kernels/attention.py | wrong everywhere | The scale 1 / sqrt(dim) is applied twice: to q after its load and to the scores; once is right.
"""Causal attention on a grid of (tiles of queries, heads, batches), to the base e."""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"BLOCK_Q": 128, "BLOCK_K": 64}, num_stages=3, num_warps=8),
    triton.Config({"BLOCK_Q": 64, "BLOCK_K": 64}, num_stages=3, num_warps=4),
    triton.Config({"BLOCK_Q": 32, "BLOCK_K": 32}, num_stages=2, num_warps=4),
]


def fitting(configs, named_args, **kwargs):
    longest = 0 if named_args["q_ptr"].dtype == torch.float32 else named_args["length"]
    return [config for config in configs if config.kwargs["BLOCK_Q"] <= longest] or configs[-1:]


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def attention_kernel(
    q_ptr, stride_qb, stride_qh, stride_qm,
    k_ptr, stride_kb, stride_kh, stride_kn,
    v_ptr, stride_vb, stride_vh, stride_vn,
    o_ptr, stride_ob, stride_oh, stride_om,
    length, scale,
    DIM: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    tile = tl.program_id(0)
    head = tl.program_id(1).to(tl.int64)
    batch = tl.program_id(2).to(tl.int64)

    rows = tile * BLOCK_Q + tl.arange(0, BLOCK_Q)
    dims = tl.arange(0, DIM)
    rows_exist = rows[:, None] < length
    q_offset = batch * stride_qb + head * stride_qh + rows[:, None].to(tl.int64) * stride_qm + dims[None, :]
    q = tl.load(q_ptr + q_offset, mask=rows_exist, other=0.0)
    q = (q * scale).to(q_ptr.dtype.element_ty)
    k_base = k_ptr + batch * stride_kb + head * stride_kh
    v_base = v_ptr + batch * stride_vb + head * stride_vh

    row_max = tl.full((BLOCK_Q,), -float("inf"), dtype=tl.float32)
    row_sum = tl.zeros((BLOCK_Q,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_Q, DIM), dtype=tl.float32)
    # keys after the last query of the tile are not needed
    for first_key in range(0, min((tile + 1) * BLOCK_Q, length), BLOCK_K):
        keys = first_key + tl.arange(0, BLOCK_K)
        keys_exist = keys < length
        # k is loaded transposed: (DIM, BLOCK_K)
        k_offset = keys[None, :].to(tl.int64) * stride_kn + dims[:, None]
        k = tl.load(k_base + k_offset, mask=keys_exist[None, :], other=0.0)
        scores = tl.dot(q, k, input_precision="ieee")
        scores = scores * scale
        scores += tl.where(rows[:, None] >= keys[None, :], 0.0, -float("inf"))
        # online softmax
        new_max = tl.maximum(row_max, tl.max(scores, axis=1))
        weights = tl.exp(scores - new_max[:, None])
        correction = tl.exp(row_max - new_max)
        row_sum = row_sum * correction + tl.sum(weights, axis=1)
        v_offset = keys[:, None].to(tl.int64) * stride_vn + dims[None, :]
        v = tl.load(v_base + v_offset, mask=keys_exist[:, None], other=0.0)
        acc = acc * correction[:, None] + tl.dot(weights.to(v.dtype), v, input_precision="ieee")
        row_max = new_max

    out = acc / row_sum[:, None]
    o_offset = batch * stride_ob + head * stride_oh + rows[:, None].to(tl.int64) * stride_om + dims[None, :]
    tl.store(o_ptr + o_offset, out.to(o_ptr.dtype.element_ty), mask=rows_exist)


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v for each head, where a query sees its own key and those before it."""
    batch, heads, length, dim = q.shape
    if out is None:
        out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    grid = lambda meta: (triton.cdiv(length, meta["BLOCK_Q"]), heads, batch)
    attention_kernel[grid](
        q, q.stride(0), q.stride(1), q.stride(2),
        k, k.stride(0), k.stride(1), k.stride(2),
        v, v.stride(0), v.stride(1), v.stride(2),
        out, out.stride(0), out.stride(1), out.stride(2),
        length, dim**-0.5,
        DIM=dim,
    )  # fmt: skip
    return out
