"""Causal attention without the matrix of scores: online softmax over blocks of keys, autotuned."""

import math

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, num_stages, num_warps):
    """One candidate: queries of a program and keys of a step, powers of two, pipeline depth and warps."""
    return triton.Config({"BLOCK_M": block_m, "BLOCK_N": block_n}, num_stages=num_stages, num_warps=num_warps)


# BEGIN TODO 1: the tile shapes the autotuner tries (about 8 lines)
# Scores and result of a tile are in registers together: 128 queries want 8 warps. BLOCK_N divides BLOCK_M.
CONFIGS = None  # TODO 1: the tile shapes the autotuner tries
# END TODO 1


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: tiles no longer than the sequence, and the last one alone for fp32."""
    # Exact fp32 runs without tensor cores, where a large tile unrolls into thousands of instructions.
    longest = 0 if named_args["q_ptr"].dtype == torch.float32 else named_args["length"]
    return [config for config in configs if config.kwargs["BLOCK_M"] <= longest] or configs[-1:]


@triton.jit
def fold(acc, m, d, q, k_ptrs, v_ptrs, offs_m, keys, length, scale, DIAGONAL: tl.constexpr):
    """The sums acc of p * v and d of p with one more block of keys, p = exp2(scale * scores - m), and m."""
    # BEGIN TODO 2: fold one block of keys into acc, m and d (about 14 lines)
    # Only where the block meets the diagonal may keys lie in the future, or past the end of the sequence.
    tl.static_assert(False, "TODO 2: fold one block of keys into acc, m and d")
    # END TODO 2


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
    # BEGIN TODO 3: which queries of which head, and where its keys and values begin (about 13 lines)
    # The rows with the most keys first: what runs last is short.
    tl.static_assert(False, "TODO 3: which queries of which head, and where its keys and values begin")
    # END TODO 3
    m = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)
    # BEGIN TODO 4: the keys before the tile, then those at the diagonal, none after it (about 8 lines)
    # The second loop without stages: with both pipelined, ptxas lets products wait for each other (C7515).
    tl.static_assert(False, "TODO 4: the keys before the tile, then those at the diagonal, none after it")
    # END TODO 4
    # BEGIN TODO 5: divide by d and store the rows (about 2 lines)
    tl.static_assert(False, "TODO 5: divide by d and store the rows")
    # END TODO 5


def attention(q, k, v, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(dim)) v for each head, where a query sees its own key and those before it.

    q, k and v are (batch, heads, length, dim), bf16, fp16 or fp32, dim 16, 32, 64 or 128 and contiguous, any
    length from 1 on; the result goes to `out`, like q, where one is given. After Dao, arXiv:2307.08691.
    """
    out = torch.empty_like(q) if out is None else out
    # BEGIN TODO 6: one program for each tile of queries of each head (about 5 lines)
    raise NotImplementedError("TODO 6: one program for each tile of queries of each head")
    # END TODO 6
    return out
