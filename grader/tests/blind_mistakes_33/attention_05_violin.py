# gpu-programming/triton-kernels/attention.py | right | right
"""Causal attention in square tiles: the tile on the diagonal first, then the earlier ones, nearest first.

Every query sees its own key, so the diagonal alone gives a finite maximum: no sum has to start at nothing.
"""

import math

import torch
import triton
import triton.language as tl


def _config(block, num_stages, num_warps):
    """One candidate: as many queries of a program as keys of a step."""
    return triton.Config({"BLOCK": block}, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [_config(128, 2, 8), _config(64, 3, 4), _config(64, 2, 4), _config(32, 2, 4)]


def fitting(configs, named_args, **kwargs):
    """Tiles up to the length of the sequence; for fp32, and where none is left, the smallest."""
    exact = named_args["q_ptr"].dtype == torch.float32
    kept = [c for c in configs if not exact and c.kwargs["BLOCK"] <= named_args["length"]]
    return kept if kept else configs[-1:]


@triton.jit
def fold(acc, m, d, scores, v):
    """The running result, maximum and denominator after one more block."""
    top = tl.maximum(m, tl.max(scores, axis=1))
    shrink = tl.exp2(m - top)
    p = tl.exp2(scores - top[:, None])
    acc = tl.dot(p.to(v.dtype), v, acc * shrink[:, None], input_precision="ieee")
    return acc, top, d * shrink + tl.sum(p, axis=1)


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, heads, planes, length, scale,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_km,
    stride_vb, stride_vh, stride_vm, stride_ob, stride_oh, stride_om,
    DIM: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """A program owns BLOCK queries of one head; there are planes = batch * heads heads."""
    pid = tl.program_id(axis=0)
    tile = tl.cdiv(length, BLOCK) - 1 - pid // planes
    batch = (pid % planes // heads).to(tl.int64)
    head = (pid % heads).to(tl.int64)

    first = tile * BLOCK
    start = first.to(tl.int64)
    at = tl.arange(0, BLOCK)
    dims = tl.arange(0, DIM)[None, :]
    exists = (first + at)[:, None] < length
    q_tile = q_ptr + batch * stride_qb + head * stride_qh + start * stride_qm
    k_tile = k_ptr + batch * stride_kb + head * stride_kh + start * stride_km
    v_tile = v_ptr + batch * stride_vb + head * stride_vh + start * stride_vm
    out_tile = out_ptr + batch * stride_ob + head * stride_oh + start * stride_om
    k_at = at[:, None] * stride_km + dims
    v_at = at[:, None] * stride_vm + dims

    q = tl.load(q_tile + at[:, None] * stride_qm + dims, mask=exists, other=0.0)
    k = tl.load(k_tile + k_at, mask=exists, other=0.0)
    v = tl.load(v_tile + v_at, mask=exists, other=0.0)
    scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
    scores = tl.where(at[:, None] >= at[None, :], scores, -float("inf"))
    m = tl.max(scores, axis=1)
    p = tl.exp2(scores - m[:, None])
    d = tl.sum(p, axis=1)
    acc = tl.dot(p.to(v.dtype), v, input_precision="ieee")

    k_back, v_back = -BLOCK * stride_km, -BLOCK * stride_vm
    for _ in tl.range(0, tile):
        k_tile += k_back
        v_tile += v_back
        k = tl.load(k_tile + k_at)
        scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        acc, m, d = fold(acc, m, d, scores, tl.load(v_tile + v_at))

    out = (acc / d[:, None]).to(out_ptr.dtype.element_ty)
    tl.store(out_tile + at[:, None] * stride_om + dims, out, mask=exists)


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v for each head, where a query sees no key after its own."""
    batch, heads, length, dim = q.shape
    out = q.new_empty((batch, heads, length, dim)) if out is None else out
    grid = lambda meta: (batch * heads * triton.cdiv(length, meta["BLOCK"]),)  # noqa: E731
    attention_kernel[grid](
        q, k, v, out, heads, batch * heads, length, math.log2(math.e) * dim**-0.5,
        q.stride(0), q.stride(1), q.stride(2), k.stride(0), k.stride(1), k.stride(2),
        v.stride(0), v.stride(1), v.stride(2), out.stride(0), out.stride(1), out.stride(2),
        DIM=dim,
    )  # fmt: skip
    return out
