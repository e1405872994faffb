# labs/lab3_autotuned_matmul/autotuned_matmul.py | right | right
"""relu(a @ b + bias) and a @ b: the ragged end of K first, then whole blocks only."""

import torch
import triton
import triton.language as tl


def candidate(bm, bn, bk, stages, warps):
    return triton.Config(
        {"BLOCK_M": bm, "BLOCK_N": bn, "BLOCK_K": bk, "GROUP_M": 4}, num_stages=stages, num_warps=warps
    )


TRIED = [(128, 256, 64, 3, 8), (256, 128, 64, 3, 8), (128, 128, 64, 3, 8), (64, 64, 32, 3, 4)]
CONFIGS = [candidate(bm, bn, bk, stages, warps) for bm, bn, bk, stages, warps in TRIED]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try for these sizes: tiles no larger than the result, small ones for fp32."""
    # fp32 is computed without tensor cores, where a large tile unrolls into thousands of instructions.
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the tiles of c.

    Bands of GROUP_M rows of tiles, walked column by column: the even ones to the right, the odd ones back to
    the left, so that a band begins with the columns of b that the last one ended with.
    """
    across = tl.cdiv(N, BLOCK_N)
    band = tile // (across * GROUP_M)
    top = band * GROUP_M
    height = tl.minimum(tl.cdiv(M, BLOCK_M) - top, GROUP_M)
    index = tile - top * across
    forth = index // height
    back = across - 1 - forth
    column = tl.where(band % 2 == 0, forth, back)
    return (top + index % height) * BLOCK_M, column * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    row = (m + tl.arange(0, BLOCK_M)).to(tl.int64)[:, None]
    col = (n + tl.arange(0, BLOCK_N)).to(tl.int64)[None, :]
    has_row = row < M
    has_col = col < N
    lane = tl.arange(0, BLOCK_K)
    a_rows = a_ptr + row * stride_am
    b_cols = b_ptr + col * stride_bn

    # What whole blocks leave over, 0 to BLOCK_K - 1 elements, at the end of K.
    whole = K // BLOCK_K
    over = K - whole * BLOCK_K
    last = (whole * BLOCK_K + lane).to(tl.int64)
    left = tl.load(a_rows + last[None, :] * stride_ak, mask=has_row & (lane[None, :] < over), other=0.0)
    right = tl.load(b_cols + last[:, None] * stride_bk, mask=has_col & (lane[:, None] < over), other=0.0)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    acc = tl.dot(left, right, acc, input_precision="ieee")

    a_block = a_rows + lane.to(tl.int64)[None, :] * stride_ak
    b_block = b_cols + lane.to(tl.int64)[:, None] * stride_bk
    onward = tl.full([], BLOCK_K, tl.int64)
    for _ in range(whole):
        left = tl.load(a_block, mask=has_row, other=0.0)
        right = tl.load(b_block, mask=has_col, other=0.0)
        acc = tl.dot(left, right, acc, input_precision="ieee")
        a_block += onward * stride_ak
        b_block += onward * stride_bk

    if BIAS_RELU:
        acc += tl.load(bias_ptr + col, mask=has_col, other=0.0).to(tl.float32)
        acc = tl.maximum(acc, 0.0)
    tl.store(c_ptr + row * stride_cm + col * stride_cn, acc.to(c_ptr.dtype.element_ty), mask=has_row & has_col)


def run(a, b, out, bias, fused):
    height, depth = a.shape
    width = b.shape[1]

    def grid(meta):
        return (triton.cdiv(height, meta["BLOCK_M"]) * triton.cdiv(width, meta["BLOCK_N"]),)

    am, ak = a.stride()
    bk, bn = b.stride()
    cm, cn = out.stride()
    matmul_kernel[grid](a, b, out, bias, height, width, depth, am, ak, bk, bn, cm, cn, BIAS_RELU=fused)


def fresh(a, b):
    return torch.empty((a.shape[0], b.shape[1]), device=a.device, dtype=a.dtype)


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b, in `out` where one is given."""
    c = fresh(a, b) if out is None else out
    run(a, b, c, a, False)
    return c


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias), in `out` where one is given."""
    c = fresh(a, b) if out is None else out
    run(a, b, c, bias, True)
    return c
