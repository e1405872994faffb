# labs/lab3_autotuned_matmul/autotuned_matmul.py | wrong everywhere | In `matmul_kernel`, `left -= BLOCK_K` stands at the top of the loop, before the masks `ks < left` of that step are made, so each step sees what is left after it: the last BLOCK_K products along K are missing, and where K <= BLOCK_K all sums are 0. Shows in every case of both functions (matmul_bias_relu gives relu(bias) for small K). The decrement belongs at the end of the loop, after the loads.
"""C = A B, one tile per program."""

import torch
import triton
import triton.language as tl

# BLOCK_M, BLOCK_N, BLOCK_K, stages, warps
SHAPES = (
    (128, 256, 64, 3, 8),
    (256, 128, 64, 3, 8),
    (128, 128, 64, 3, 8),
    (128, 64, 32, 4, 4),
    (64, 128, 32, 4, 4),
    (64, 64, 32, 4, 4),
)

CONFIGS = [
    triton.Config({"BLOCK_M": bm, "BLOCK_N": bn, "BLOCK_K": bk, "GROUP_M": 8}, num_stages=stages, num_warps=warps)
    for bm, bn, bk, stages, warps in SHAPES
]


def fitting(configs, named_args, **kwargs):
    """Tiles no larger than the result; for fp32 only the small ones."""
    limit = min(named_args["M"], named_args["N"], 64 if named_args["bias_ptr"].dtype == torch.float32 else 256)
    kept = []
    for config in configs:
        if config.kwargs["BLOCK_M"] <= limit and config.kwargs["BLOCK_N"] <= limit:
            kept.append(config)
    return kept if kept else [configs[-1]]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the tiles of c."""
    across = tl.cdiv(N, BLOCK_N)
    group = tile // (GROUP_M * across)
    top = group * GROUP_M
    height = min(tl.cdiv(M, BLOCK_M) - top, GROUP_M)
    inside = tile - group * GROUP_M * across
    return (top + inside % height) * BLOCK_M, inside // height * BLOCK_N


@triton.jit
def grid_of(base, i, j, stride_i, stride_j):
    """Addresses of the elements (i, j), i as a column and j as a row."""
    return base + i[:, None] * stride_i + j[None, :] * stride_j


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    i = m.to(tl.int64) + tl.arange(0, BLOCK_M)
    j = n.to(tl.int64) + tl.arange(0, BLOCK_N)
    ks = tl.arange(0, BLOCK_K)
    a_tile = grid_of(a_ptr, i, ks, stride_am, stride_ak)
    b_tile = grid_of(b_ptr, ks, j, stride_bk, stride_bn)
    has_row = (i < M)[:, None]
    has_col = (j < N)[None, :]

    sums = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    left = K
    for _ in range(0, tl.cdiv(K, BLOCK_K)):
        left -= BLOCK_K
        x = tl.load(a_tile, mask=has_row & (ks < left)[None, :], other=0.0)
        y = tl.load(b_tile, mask=has_col & (ks < left)[:, None], other=0.0)
        sums = tl.dot(x, y, sums, input_precision="ieee")
        a_tile += BLOCK_K * stride_ak
        b_tile += BLOCK_K * stride_bk

    if BIAS_RELU:
        bias = tl.load(bias_ptr + j, mask=j < N, other=0.0)
        sums = tl.maximum(sums + bias.to(tl.float32)[None, :], 0.0)

    c_tile = grid_of(c_ptr, i, j, stride_cm, stride_cn)
    tl.store(c_tile, sums.to(c_ptr.dtype.element_ty), mask=has_row & has_col)


def _launch(a, b, bias, out, bias_relu):
    M, K = a.shape
    N = b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)

    def grid(meta):
        return (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)

    matmul_kernel[grid](
        a, b, out, bias, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), out.stride(0), out.stride(1),
        BIAS_RELU=bias_relu,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b, summed in fp32 and rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel."""
    return _launch(a, b, bias, out, bias_relu=True)
