# labs/lab3_autotuned_matmul/autotuned_matmul.py | right | right
"""Matrix product on a grid of two axes: a program keeps its rows of a and walks over columns of b."""

import itertools

import torch
import triton
import triton.language as tl

# Programs that share the rows of a tile, at most: far below the limit of the second axis of a grid.
WALKERS = 64


def _config(block_m, block_n, block_k, num_stages, num_warps, pre_hook=None):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps, pre_hook=pre_hook)


CONFIGS = [
    *[_config(128, 256, 64, stages, 8) for stages in (3, 4)],
    *[_config(128, 128, depth, 3, 8) for depth in (32, 64)],
    *[_config(m, n, 64, 3, 4) for m, n in itertools.product((128, 64), (64,))],
]


def fitting(configs, named_args, **kwargs):
    """The configs whose tile is no larger than the result; the last one where none is, and for fp32."""
    if named_args["bias_ptr"].dtype == torch.float32:
        return configs[-1:]
    M, N = named_args["M"], named_args["N"]
    return [c for c in configs if c.kwargs["BLOCK_M"] <= M and c.kwargs["BLOCK_N"] <= N] or configs[-1:]


@triton.jit
def place(i, j, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """The 64-bit numbers of the rows and of the columns of tile (i, j)."""
    rows = i * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = j * BLOCK_N + tl.arange(0, BLOCK_N)
    return rows.to(tl.int64), cols.to(tl.int64)


@triton.jit
def product(
    a_row, b_col, row_exists, col_exists, K, stride_ak, stride_bk,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """The fp32 sums along K for one tile; a_row is a column of addresses, b_col a row of them."""
    sums = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        ks = k + tl.arange(0, BLOCK_K)
        on = ks < K
        x = tl.load(a_row + ks[None, :] * stride_ak, mask=row_exists & on[None, :], other=0.0)
        y = tl.load(b_col + ks[:, None] * stride_bk, mask=on[:, None] & col_exists, other=0.0)
        sums = tl.dot(x, y, sums, input_precision="ieee")
    return sums


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Program (i, w) owns the tiles (i, w), (i, w + walkers), (i, w + 2 walkers), ..."""
    for j in range(tl.program_id(1), tl.cdiv(N, BLOCK_N), tl.num_programs(1)):
        rows, cols = place(tl.program_id(0), j, BLOCK_M, BLOCK_N)
        row_exists = rows[:, None] < M
        col_exists = cols[None, :] < N
        sums = product(
            a_ptr + rows[:, None] * stride_am, b_ptr + cols[None, :] * stride_bn,
            row_exists, col_exists, K, stride_ak, stride_bk, BLOCK_M, BLOCK_N, BLOCK_K,
        )  # fmt: skip
        if BIAS_RELU:
            bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0)
            sums = tl.maximum(sums + bias.to(tl.float32)[None, :], 0.0)
        target = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
        tl.store(target, sums.to(c_ptr.dtype.element_ty), mask=row_exists & col_exists)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)

    def grid(meta):
        return triton.cdiv(M, meta["BLOCK_M"]), min(WALKERS, triton.cdiv(N, meta["BLOCK_N"]))

    matmul_kernel[grid](
        a, b, out, bias, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), out.stride(0), out.stride(1),
        BIAS_RELU=bias_relu,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, any strides; one rounding at the end."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous."""
    return _launch(a, b, bias, out, bias_relu=True)
