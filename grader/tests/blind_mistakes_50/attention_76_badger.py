# gpu-programming/triton-kernels/attention.py | corner | `HIDDEN = tl.constexpr(-10000.0)`, used in attention_kernel as `tl.where(keys[None, :] <= rows[:, None], scores, HIDDEN)`; it should be -inf. Scores (before the scale) below -10000 lose against the hidden keys, so the result has later keys in it: shows only where all scores lie far below 0 (values "below"), in any dtype.
"""Causal attention by blocks of keys with a running maximum, exponentials as powers of two, autotuned."""

import math

import torch
import triton
import triton.language as tl

HIDDEN = tl.constexpr(-10000.0)  # the score of a key that a query does not see

TILES = (  # queries, keys, stages, warps; the last one for fp32 and short sequences
    (128, 128, 2, 8),
    (128, 64, 3, 8),
    (64, 64, 3, 4),
    (64, 32, 2, 4),
)
CONFIGS = [
    triton.Config({"QUERIES": queries, "KEYS": keys}, num_stages=stages, num_warps=warps)
    for queries, keys, stages, warps in TILES
]


def fitting(configs, named_args, **kwargs):
    """Only tiles that the sequence fills; exact fp32 has no tensor cores and gets the smallest."""
    length = named_args["length"]
    if named_args["q_ptr"].dtype == torch.float32:
        length = 0
    return [config for config in configs if config.kwargs["QUERIES"] <= length] or configs[-1:]


@triton.jit
def absorb(acc, m, d, scores, v, scale):
    """One more block of scores and values: what was summed before is brought to the new maximum."""
    high = tl.maximum(m, scale * tl.max(scores, axis=1))
    p = tl.exp2(scale * scores - high[:, None])
    old = tl.exp2(m - high)
    acc = tl.dot(p.to(v.dtype), v, acc * old[:, None], input_precision="ieee")
    return acc, high, d * old + tl.sum(p, axis=1)


@triton.autotune(configs=CONFIGS, key=["length", "DIM"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, heads, length, scale,
    q_batch, q_head, q_pos, k_batch, k_head, k_pos, v_batch, v_head, v_pos, out_batch, out_head, out_pos,
    DIM: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    """Programs are numbered head by head inside a tile of queries, and the last tile, the longest, is first.

    q_pos and so on are elements from one position to the next, q_head from head to head.
    """
    tiles = tl.cdiv(length, QUERIES)
    pairs = tl.num_programs(axis=0) // tiles
    pid = tl.program_id(axis=0)
    begin = (tiles - 1 - pid // pairs) * QUERIES
    pair = pid % pairs
    batch = (pair // heads).to(tl.int64)
    head = (pair % heads).to(tl.int64)
    begin64 = begin.to(tl.int64)

    dims = tl.arange(0, DIM)
    mine = tl.arange(0, QUERIES)
    theirs = tl.arange(0, KEYS)
    rows = begin + mine
    exists = (rows < length)[:, None]
    q_tile = q_ptr + batch * q_batch + head * q_head + begin64 * q_pos
    q = tl.load(q_tile + mine[:, None] * q_pos + dims[None, :], mask=exists, other=0.0)
    k_block = k_ptr + batch * k_batch + head * k_head
    v_block = v_ptr + batch * v_batch + head * v_head
    k_offs = theirs[:, None] * k_pos + dims[None, :]
    v_offs = theirs[:, None] * v_pos + dims[None, :]

    m = tl.full((QUERIES,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((QUERIES,), dtype=tl.float32)
    acc = tl.zeros((QUERIES, DIM), dtype=tl.float32)
    for _ in tl.range(0, begin, KEYS):
        k = tl.load(k_block + k_offs)
        scores = tl.dot(q, k.T, input_precision="ieee")
        v = tl.load(v_block + v_offs)
        acc, m, d = absorb(acc, m, d, scores, v, scale)
        k_block += KEYS * k_pos
        v_block += KEYS * v_pos
    for start in tl.range(begin, tl.minimum(begin + QUERIES, length), KEYS, num_stages=1):
        keys = start + theirs
        inside = (keys < length)[:, None]
        k = tl.load(k_block + k_offs, mask=inside, other=0.0)
        scores = tl.dot(q, k.T, input_precision="ieee")
        scores = tl.where(keys[None, :] <= rows[:, None], scores, HIDDEN)
        v = tl.load(v_block + v_offs, mask=inside, other=0.0)
        acc, m, d = absorb(acc, m, d, scores, v, scale)
        k_block += KEYS * k_pos
        v_block += KEYS * v_pos

    out_tile = out_ptr + batch * out_batch + head * out_head + begin64 * out_pos
    y = (acc / d[:, None]).to(out_ptr.dtype.element_ty)
    tl.store(out_tile + mine[:, None] * out_pos + dims[None, :], y, mask=exists)


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v for each head of (batch, heads, length, dim); no query sees a later key."""
    if out is None:
        out = torch.empty(q.shape, device=q.device, dtype=q.dtype)
    batches, heads, length, dim = q.shape
    strides = [stride for tensor in (q, k, v, out) for stride in tensor.stride()[:3]]
    scale = math.log2(math.e) / math.sqrt(dim)

    def grid(meta):
        return (triton.cdiv(length, meta["QUERIES"]) * batches * heads,)

    attention_kernel[grid](q, k, v, out, heads, length, scale, *strides, DIM=dim)
    return out
