# gpu-programming/triton-kernels/attention.py | error | In the loop tl.dot(p, v, ...) gets p in fp32 and v in 16 bits: Triton refuses operands of two dtypes, so fp16 and bf16 do not compile (fp32 is right). It should be p.to(v.dtype).
"""Attention of a causal language model, tile by tile, with exp in place of exp2."""

import torch
import triton
import triton.language as tl


def _try(rows, keys, stages, warps):
    return triton.Config({"ROWS": rows, "KEYS": keys}, num_stages=stages, num_warps=warps)


def _possible(configs, named_args, **kwargs):
    if named_args["q"].dtype == torch.float32:
        return configs[-1:]
    possible = [c for c in configs if c.kwargs["ROWS"] <= named_args["length"]]
    return possible or configs[-1:]


@triton.autotune(
    configs=[_try(128, 128, 2, 8), _try(128, 64, 3, 8), _try(64, 64, 3, 4), _try(32, 32, 2, 4)],
    key=["length", "DIM"],
    prune_configs_by={"early_config_prune": _possible},
)
@triton.jit
def kernel(
    q, k, v, o, heads, length,
    qb, qh, qm, kb, kh, kn, vb, vh, vn, ob, oh, om,
    DIM: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(0)
    b = (head // heads).to(tl.int64)
    h = (head % heads).to(tl.int64)
    # long rows first
    begin = (tl.cdiv(length, ROWS) - 1 - tl.program_id(1)) * ROWS
    i = begin + tl.arange(0, ROWS)
    c = tl.arange(0, DIM)
    i64 = i.to(tl.int64)
    tile_q = tl.load(q + b * qb + h * qh + i64[:, None] * qm + c[None, :], mask=i[:, None] < length, other=0.0)
    k_first = k + b * kb + h * kh
    v_first = v + b * vb + h * vh

    factor = 1.0 / tl.sqrt(tl.full((1, 1), DIM * 1.0, dtype=tl.float32))
    largest = tl.full((ROWS,), float("-inf"), dtype=tl.float32)
    total = tl.zeros((ROWS,), dtype=tl.float32)
    acc = tl.zeros((ROWS, DIM), dtype=tl.float32)
    end = tl.minimum(begin + ROWS, length)
    for j0 in range(0, end, KEYS):
        j = j0 + tl.arange(0, KEYS)
        j64 = j.to(tl.int64)
        tile_k = tl.load(k_first + j64[None, :] * kn + c[:, None], mask=j[None, :] < length, other=0.0)
        s = tl.dot(tile_q, tile_k, input_precision="ieee") * factor
        s = tl.where(i[:, None] >= j[None, :], s, float("-inf"))
        now = tl.maximum(largest, tl.max(s, axis=1))
        shrink = tl.exp(largest - now)
        p = tl.exp(s - now[:, None])
        total = total * shrink + tl.sum(p, axis=1)
        tile_v = tl.load(v_first + j64[:, None] * vn + c[None, :], mask=j[:, None] < length, other=0.0)
        acc = acc * shrink[:, None] + tl.dot(p, tile_v, input_precision="ieee")
        largest = now

    acc = acc / total[:, None]
    where = o + b * ob + h * oh + i64[:, None] * om + c[None, :]
    tl.store(where, acc.to(o.dtype.element_ty), mask=i[:, None] < length)


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    B, H, L, D = q.shape
    out = q.new_empty((B, H, L, D)) if out is None else out
    strides = []
    for tensor in (q, k, v, out):
        strides += [tensor.stride(0), tensor.stride(1), tensor.stride(2)]
    kernel[lambda meta: (B * H, triton.cdiv(L, meta["ROWS"]))](q, k, v, out, H, L, *strides, DIM=D)
    return out
