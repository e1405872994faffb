# labs/lab3_autotuned_matmul/autotuned_matmul.py | corner | `_launch` computes a column-major `out` (out.stride(0) < out.stride(1)) as out.T = b.T @ a.T, but `product_kernel` still loads the bias by the columns of what it stores (`bias_ptr + cols`), which are then the rows of the result: row i gets bias[i] (with M > N it also reads past the end of the bias); shows only in matmul_bias_relu with a transposed `out`; in that case the bias must be loaded at `rows` below the row limit and added as `bias[:, None]`
"""Matrix product that writes along memory: a column-major result is computed as the transposed product."""

import torch
import triton
import triton.language as tl


def make(block_m, block_n, block_k, group, stages, warps):
    """A candidate for the autotuner."""
    return triton.Config(
        kwargs={"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP": group},
        num_stages=stages,
        num_warps=warps,
    )


CANDIDATES = [
    make(128, 256, 64, 8, 3, 8),
    make(256, 128, 64, 4, 3, 8),
    make(128, 128, 64, 8, 4, 8),
    make(64, 128, 32, 8, 4, 4),
    make(64, 64, 32, 8, 3, 4),
]


def plausible(candidates, named_args, **kwargs):
    M, N = named_args["M"], named_args["N"]
    most = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    good = []
    for c in candidates:
        if c.kwargs["BLOCK_M"] <= min(M, most) and c.kwargs["BLOCK_N"] <= min(N, most):
            good.append(c)
    return good if good else candidates[-1:]


@triton.jit
def tile_start(number, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP: tl.constexpr):
    """First row and first column of the tile with this number, in the grouped order."""
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    size = GROUP * tiles_n
    first = number // size * GROUP
    high = min(tiles_m - first, GROUP)
    number = number % size
    return (first + number % high) * BLOCK_M, (number // high) * BLOCK_N


@triton.autotune(configs=CANDIDATES, key=["M", "N", "K"], prune_configs_by={"early_config_prune": plausible})
@triton.jit
def product_kernel(
    x_ptr, y_ptr, z_ptr, bias_ptr, M, N, K,
    x_row, x_col, y_row, y_col, z_row, z_col, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """z = x @ y, x (M, K) and y (K, N), with the epilogue where BIAS_RELU."""
    m, n = tile_start(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    ks = tl.arange(0, BLOCK_K).to(tl.int64)
    x_base = x_ptr + rows[:, None] * x_row
    y_base = y_ptr + cols[None, :] * y_col

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        here = ks + k
        x = tl.load(x_base + here[None, :] * x_col, mask=(rows[:, None] < M) & (here[None, :] < K), other=0.0)
        y = tl.load(y_base + here[:, None] * y_row, mask=(here[:, None] < K) & (cols[None, :] < N), other=0.0)
        acc = tl.dot(x, y, acc, input_precision="ieee")

    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[None, :], 0.0)

    z = z_ptr + rows[:, None] * z_row + cols[None, :] * z_col
    tl.store(z, acc.to(z_ptr.dtype.element_ty), mask=(rows[:, None] < M) & (cols[None, :] < N))


def _launch(a, b, bias, out, bias_relu):
    if out is None:
        out = torch.empty((a.shape[0], b.shape[1]), device=a.device, dtype=a.dtype)
    x, y, z = a, b, out
    if out.stride(0) < out.stride(1):
        x, y, z = b.T, a.T, out.T
    (M, K), N = x.shape, y.shape[1]
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    product_kernel[grid](
        x, y, z, bias, M, N, K, *x.stride(), *y.stride(), *z.stride(), BIAS_RELU=bias_relu
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b; sums in fp32."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias)."""
    return _launch(a, b, bias, out, bias_relu=True)
