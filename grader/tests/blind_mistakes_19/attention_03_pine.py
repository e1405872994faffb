# gpu-programming/triton-kernels/attention.py | corner | In causal_kernel the diagonal part ends at first + 2 * STEP, which relies on TILE being at most 2 * STEP; the configs (128, 32) and (64, 16) leave the last keys of the tile out. It should be first + TILE.
import math

import torch
import triton
import triton.language as tl
from triton import cdiv

CONFIGS = []
for tile, step, stages, warps in (
    (128, 64, 3, 8),
    (128, 32, 4, 8),
    (64, 64, 3, 4),
    (64, 32, 3, 4),
    (64, 16, 3, 4),
    (32, 16, 2, 4),
):
    CONFIGS.append(triton.Config({"TILE": tile, "STEP": step}, num_stages=stages, num_warps=warps))


def select(configs, named_args, **kwargs):
    longest = named_args["length"]
    if named_args["Q"].dtype == torch.float32:
        longest = min(longest, 64)
    good = []
    for config in configs:
        if config.kwargs["TILE"] <= longest and (named_args["Q"].dtype != torch.float32 or config.kwargs["STEP"] < 64):
            good.append(config)
    if len(good) == 0:
        good = configs[-1:]
    return good


@triton.autotune(configs=CONFIGS, key=["length", "HEAD_DIM"], prune_configs_by={"early_config_prune": select})
@triton.jit
def causal_kernel(
    Q, K, V, O,
    n_heads, length, log2_scale,
    qb, qh, qs, kb, kh, ks, vb, vh, vs, ob, oh, os,
    HEAD_DIM: tl.constexpr, TILE: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    # longest rows first; a program has TILE queries of one head
    head = tl.program_id(0) % n_heads
    rest = tl.program_id(0) // n_heads
    n_tiles = tl.cdiv(length, TILE)
    tile = n_tiles - 1 - rest % n_tiles
    head = head.to(tl.int64)
    batch = (rest // n_tiles).to(tl.int64)

    first = tile * TILE
    row = first + tl.arange(0, TILE)
    col = tl.arange(0, HEAD_DIM)
    lane = tl.arange(0, STEP)
    wide_row = row.to(tl.int64)

    q = tl.load(Q + batch * qb + head * qh + wide_row[:, None] * qs + col[None, :], mask=row[:, None] < length, other=0.0)
    K += batch * kb + head * kh
    V += batch * vb + head * vh

    biggest = tl.full([TILE], float("-inf"), tl.float32)
    total = tl.zeros([TILE], tl.float32)
    mixed = tl.zeros([TILE, HEAD_DIM], tl.float32)

    stop = tl.minimum(first + 2 * STEP, length)
    for at in range(0, stop, STEP):
        key = (at + lane).to(tl.int64)
        there = key < length
        k = tl.load(K + key[:, None] * ks + col[None, :], mask=there[:, None], other=0.0)
        s = tl.dot(q, tl.trans(k), input_precision="ieee") * log2_scale
        if at + STEP > first:
            s = tl.where(row[:, None] >= key[None, :], s, float("-inf"))
        now = tl.maximum(biggest, tl.max(s, 1))
        decay = tl.exp2(biggest - now)
        w = tl.exp2(s - now[:, None])
        total = total * decay + tl.sum(w, 1)
        mixed = mixed * decay[:, None]
        v = tl.load(V + key[:, None] * vs + col[None, :], mask=there[:, None], other=0.0)
        mixed = tl.dot(w.to(v.dtype), v, mixed, input_precision="ieee")
        biggest = now

    mixed = mixed / total[:, None]
    where = O + batch * ob + head * oh + wide_row[:, None] * os + col[None, :]
    tl.store(where, mixed.to(O.dtype.element_ty), mask=row[:, None] < length)


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    batch, n_heads, length, head_dim = q.shape
    result = out
    if result is None:
        result = q.new_empty((batch, n_heads, length, head_dim))
    strides = [t.stride(axis) for t in (q, k, v, result) for axis in range(3)]
    causal_kernel[lambda meta: (cdiv(length, meta["TILE"]) * batch * n_heads,)](
        q, k, v, result, n_heads, length, math.log2(math.e) * head_dim**-0.5, *strides, HEAD_DIM=head_dim
    )
    return result
