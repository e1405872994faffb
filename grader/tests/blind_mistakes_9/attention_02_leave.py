# gpu-programming/triton-kernels/attention.py | error | The loop over the keys is left by `break` inside the kernel (`if start > last: break`); Triton compiles neither break nor continue (COMPILE_ERROR wherever the kernel is compiled), the bound of the range must be min(last + 1, length). In the interpreter all numbers are right.
"""Causal attention, tiles of queries against blocks of keys; scores are never stored."""

import math

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, num_stages, num_warps):
    return triton.Config({"BLOCK_M": block_m, "BLOCK_N": block_n}, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [_config(128, 128, 2, 8), _config(128, 64, 3, 8), _config(64, 64, 3, 4), _config(16, 16, 2, 4)]


def fitting(configs, named_args, **kwargs):
    if named_args["q_ptr"].dtype == torch.float32:
        return configs[-1:]
    return [config for config in configs if config.kwargs["BLOCK_M"] <= named_args["length"]] or configs[-1:]


@triton.jit
def tile_of(ptr, b, h, positions, length, stride_b, stride_h, stride_m, DIM: tl.constexpr):
    """The rows `positions` of one head, and 0 where the sequence has no such row."""
    rows = ptr + b * stride_b + h * stride_h + positions.to(tl.int64)[:, None] * stride_m
    return tl.load(rows + tl.arange(0, DIM)[None, :], mask=(positions < length)[:, None], other=0.0)


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, heads, length, scale,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_om,
    DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    # Axis 0 counts heads of all batches, axis 1 the tiles of a head, the longest first.
    which = tl.program_id(axis=0).to(tl.int64)
    b, h = which // heads, which % heads
    tile = tl.num_programs(axis=1) - 1 - tl.program_id(axis=1)
    queries = tile * BLOCK_M + tl.arange(0, BLOCK_M)
    last = tile * BLOCK_M + BLOCK_M - 1
    q = tile_of(q_ptr, b, h, queries, length, stride_qb, stride_qh, stride_qm, DIM)

    m = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)
    for start in range(0, length, BLOCK_N):
        # What follows lies in the future of all queries here.
        if start > last:
            break
        keys = start + tl.arange(0, BLOCK_N)
        k = tile_of(k_ptr, b, h, keys, length, stride_kb, stride_kh, stride_kn, DIM)
        v = tile_of(v_ptr, b, h, keys, length, stride_vb, stride_vh, stride_vn, DIM)
        scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        scores = tl.where(queries[:, None] >= keys[None, :], scores, -float("inf"))
        m_new = tl.maximum(m, tl.max(scores, axis=1))
        p = tl.exp2(scores - m_new[:, None])
        alpha = tl.exp2(m - m_new)
        d = d * alpha + tl.sum(p, axis=1)
        acc = acc * alpha[:, None]
        acc = tl.dot(p.to(v.dtype), v, acc, input_precision="ieee")
        m = m_new

    acc = acc / d[:, None]
    rows = out_ptr + b * stride_ob + h * stride_oh + queries.to(tl.int64)[:, None] * stride_om
    tl.store(rows + tl.arange(0, DIM)[None, :], acc.to(out_ptr.dtype.element_ty), mask=(queries < length)[:, None])


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    batch, heads, length, dim = q.shape
    out = torch.empty((batch, heads, length, dim), dtype=q.dtype, device=q.device) if out is None else out
    scale = math.log2(math.e) / math.sqrt(dim)
    attention_kernel[lambda meta: (batch * heads, triton.cdiv(length, meta["BLOCK_M"]))](
        q, k, v, out, heads, length, scale,
        q.stride(0), q.stride(1), q.stride(2), k.stride(0), k.stride(1), k.stride(2),
        v.stride(0), v.stride(1), v.stride(2), out.stride(0), out.stride(1), out.stride(2), DIM=dim,
    )  # fmt: skip
    return out
