# gpu-programming/triton-kernels/attention.py | corner | step() reaches the values of a block with the row stride of k: v_at + offs * stride_kn; it should be stride_vn. Wrong only where k and v have different strides along the sequence.
"""FlashAttention, forward, causal."""

import math

import torch
import triton
import triton.language as tl

LOG2E = 1.4426950408889634

CONFIGS = []
for bm, bn, stages, warps in [(128, 128, 2, 8), (128, 64, 3, 8), (64, 64, 3, 4), (64, 32, 3, 4), (32, 32, 2, 4)]:
    CONFIGS.append(triton.Config({"BLOCK_M": bm, "BLOCK_N": bn}, num_stages=stages, num_warps=warps))


def shorter(configs, named_args, **kwargs):
    length = named_args["length"]
    if named_args["q_ptr"].dtype == torch.float32:
        length = 0
    kept = [c for c in configs if c.kwargs["BLOCK_M"] <= length]
    return kept or configs[-1:]


@triton.jit
def step(acc, m, d, q, k_at, v_at, first_key, rows, length, scale, stride_kn, stride_vn,
         MASK: tl.constexpr, DIM: tl.constexpr, BLOCK_N: tl.constexpr):  # fmt: skip
    """One block of keys."""
    cols = tl.arange(0, DIM)
    offs = first_key + tl.arange(0, BLOCK_N).to(tl.int64)
    k_ptrs = k_at + offs[None, :] * stride_kn + cols[:, None]
    v_ptrs = v_at + offs[:, None] * stride_kn + cols[None, :]
    if MASK:
        k = tl.load(k_ptrs, mask=offs[None, :] < length, other=0.0)
    else:
        k = tl.load(k_ptrs)
    s = tl.dot(q, k, input_precision="ieee")
    if MASK:
        s = tl.where(rows[:, None] >= offs[None, :], s, -float("inf"))
    top = tl.maximum(m, scale * tl.max(s, 1))
    p = tl.exp2(scale * s - top[:, None])
    r = tl.exp2(m - top)
    if MASK:
        v = tl.load(v_ptrs, mask=offs[:, None] < length, other=0.0)
    else:
        v = tl.load(v_ptrs)
    acc = tl.dot(p.to(v.dtype), v, acc * r[:, None], input_precision="ieee")
    return acc, top, d * r + tl.sum(p, 1)


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": shorter})
@triton.jit
def flash(
    q_ptr, k_ptr, v_ptr, out_ptr, heads, length, scale,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_om,
    DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    bh = tl.program_id(0)
    b = (bh // heads).to(tl.int64)
    h = (bh % heads).to(tl.int64)
    begin = (tl.num_programs(1) - 1 - tl.program_id(1)) * BLOCK_M
    rows = (begin + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = tl.arange(0, DIM)
    q = tl.load(
        q_ptr + b * stride_qb + h * stride_qh + rows[:, None] * stride_qm + cols[None, :],
        mask=rows[:, None] < length,
        other=0.0,
    )
    k_at = k_ptr + b * stride_kb + h * stride_kh
    v_at = v_ptr + b * stride_vb + h * stride_vh
    m = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)
    # below the diagonal
    for n in range(0, begin, BLOCK_N):
        acc, m, d = step(acc, m, d, q, k_at, v_at, n, rows, length, scale, stride_kn, stride_vn, False, DIM, BLOCK_N)
    # on the diagonal
    for n in tl.range(begin, tl.minimum(length, begin + BLOCK_M), BLOCK_N, num_stages=1):
        acc, m, d = step(acc, m, d, q, k_at, v_at, n, rows, length, scale, stride_kn, stride_vn, True, DIM, BLOCK_N)
    o = out_ptr + b * stride_ob + h * stride_oh + rows[:, None] * stride_om + cols[None, :]
    tl.store(o, (acc / d[:, None]).to(out_ptr.dtype.element_ty), mask=rows[:, None] < length)


def attention(q, k, v, *, out=None):
    b, h, length, dim = q.shape
    out = torch.empty((b, h, length, dim), dtype=q.dtype, device=q.device) if out is None else out
    flash[lambda meta: (b * h, triton.cdiv(length, meta["BLOCK_M"]))](
        q, k, v, out, h, length, LOG2E / math.sqrt(dim),
        q.stride(0), q.stride(1), q.stride(2),
        k.stride(0), k.stride(1), k.stride(2),
        v.stride(0), v.stride(1), v.stride(2),
        out.stride(0), out.stride(1), out.stride(2),
        DIM=dim,
    )  # fmt: skip
    return out
