# gpu-programming/triton-kernels/attention.py | error | In `update`, `mass = mass * shrink + tl.sum(p, axis=1)`: mass and shrink are (BLOCK_M, 1), the sum is (BLOCK_M,) and is broadcast as a row, so mass becomes (BLOCK_M, BLOCK_M); it should be `tl.sum(p, axis=1, keep_dims=True)`. Triton refuses to compile the loop, as the loop-carried variable mass changes its type; in all cases.
"""Causal attention without the matrix of scores: online softmax over blocks of keys, autotuned."""

import math

import torch
import triton
import triton.language as tl

# Queries of a program, keys of a step (which divide them), stages, warps; the last one also for fp32.
TILES = ((128, 128, 2, 8), (128, 64, 3, 8), (64, 64, 3, 4), (64, 32, 3, 4), (32, 32, 2, 4))
CONFIGS = [
    triton.Config({"BLOCK_M": block_m, "BLOCK_N": block_n}, num_stages=stages, num_warps=warps)
    for block_m, block_n, stages, warps in TILES
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: tiles no longer than the sequence, and the last one alone for fp32."""
    if named_args["q_ptr"].dtype == torch.float32:
        return configs[-1:]
    return [config for config in configs if config.kwargs["BLOCK_M"] <= named_args["length"]] or configs[-1:]


@triton.jit
def start_of(ptr, batch, head, position, stride_b, stride_h, stride_m):
    """Where the row `position` of one head begins; batch, head and position are int64."""
    return ptr + batch * stride_b + head * stride_h + position * stride_m


@triton.jit
def update(acc, top, mass, weighed, v):
    """One more block of keys, whose scores are in units of log2: top and mass are columns, as acc has rows."""
    top_new = tl.maximum(top, tl.max(weighed, axis=1, keep_dims=True))
    shrink = tl.exp2(top - top_new)
    p = tl.exp2(weighed - top_new)
    mass = mass * shrink + tl.sum(p, axis=1)
    acc = tl.dot(p.to(v.dtype), v, acc * shrink, input_precision="ieee")
    return acc, top_new, mass


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, heads, length, scale,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_om,
    DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """out[i, :] = sum over j <= i of softmax(q k^T)[i, j] v[j, :]; a program owns BLOCK_M rows of one head.

    q, k, v and out are (batch, heads, length, DIM), of one dtype, the last dimension contiguous, any strides
    before it. scale is log2(e) / sqrt(DIM).
    """
    tiles = tl.cdiv(length, BLOCK_M)
    pid = tl.program_id(axis=0)
    first = (tiles - 1 - pid % tiles) * BLOCK_M  # the longest rows of each head first
    which = (pid // tiles).to(tl.int64)
    batch, head, row = which // heads, which % heads, first.to(tl.int64)

    queries = tl.arange(0, BLOCK_M)[:, None]
    dims = tl.arange(0, DIM)
    keys = tl.arange(0, BLOCK_N)
    exists = first + queries < length
    q_tile = start_of(q_ptr, batch, head, row, stride_qb, stride_qh, stride_qm)
    q = tl.load(q_tile + (queries * stride_qm + dims[None, :]), mask=exists, other=0.0)
    # Keys as columns, values as rows.
    k_offs = dims[:, None] + keys[None, :] * stride_kn
    v_offs = keys[:, None] * stride_vn + dims[None, :]
    k_tile = k_ptr + batch * stride_kb + head * stride_kh
    v_tile = v_ptr + batch * stride_vb + head * stride_vh

    top = tl.full((BLOCK_M, 1), -float("inf"), dtype=tl.float32)
    mass = tl.zeros((BLOCK_M, 1), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)
    for _ in tl.range(0, first, BLOCK_N):
        k = tl.load(k_tile + k_offs)
        v = tl.load(v_tile + v_offs)
        weighed = tl.dot(q, k, input_precision="ieee") * scale
        acc, top, mass = update(acc, top, mass, weighed, v)
        k_tile += BLOCK_N * stride_kn
        v_tile += BLOCK_N * stride_vn
    for start in tl.range(first, tl.minimum(first + BLOCK_M, length), BLOCK_N, num_stages=1):
        here = start + keys
        k = tl.load(k_tile + k_offs, mask=here[None, :] < length, other=0.0)
        v = tl.load(v_tile + v_offs, mask=here[:, None] < length, other=0.0)
        weighed = tl.dot(q, k, input_precision="ieee") * scale
        weighed = tl.where(first + queries >= here[None, :], weighed, -float("inf"))
        acc, top, mass = update(acc, top, mass, weighed, v)
        k_tile += BLOCK_N * stride_kn
        v_tile += BLOCK_N * stride_vn

    out_tile = start_of(out_ptr, batch, head, row, stride_ob, stride_oh, stride_om)
    result = (acc / mass).to(out_ptr.dtype.element_ty)
    tl.store(out_tile + (queries * stride_om + dims[None, :]), result, mask=exists)


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v for each head, where a query sees its own key and those before it.

    q, k and v are (batch, heads, length, dim), bf16, fp16 or fp32, dim 16, 32, 64 or 128 and contiguous, any
    length from 1 on; the result goes to `out`, like q, where one is given. After Dao, arXiv:2307.08691.
    """
    batch, heads, length, dim = q.shape
    if out is None:
        out = torch.empty((batch, heads, length, dim), dtype=q.dtype, device=q.device)
    if batch * heads == 0:
        return out
    grid = lambda meta: (batch * heads * triton.cdiv(length, meta["BLOCK_M"]),)  # noqa: E731
    attention_kernel[grid](
        q, k, v, out, heads, length, math.log2(math.e) / math.sqrt(dim),
        q.stride(0), q.stride(1), q.stride(2), k.stride(0), k.stride(1), k.stride(2),
        v.stride(0), v.stride(1), v.stride(2), out.stride(0), out.stride(1), out.stride(2),
        DIM=dim,
    )  # fmt: skip
    return out
