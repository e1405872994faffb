# labs/lab3_autotuned_matmul/autotuned_matmul.py | contract | In `_product`, where A lies column by column (`a.stride(0) < a.stride(1)`) and no out is given, `product = left.new_empty((left.shape[0], right.shape[1]))` is (N, M), and `out = product.T` is returned: the numbers are right, but the result is not contiguous. The README asks for a new contiguous (M, N) matrix: allocate that one, and launch on its `.T`. Shows for a transposed A without out (M and N above 1), in both functions.
"""Autotuned matrix product; where A lies column by column, the transposed product is computed instead."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 256, 64, 3, 8),
    _config(128, 256, 64, 4, 8),
    _config(256, 128, 64, 3, 8),
    _config(128, 128, 64, 3, 8),
    _config(64, 128, 64, 4, 4),
    _config(64, 64, 32, 3, 4),
]

# Which side of the result the bias belongs to.
NO_BIAS = 0
BIAS_OF_COLUMNS = 1
BIAS_OF_ROWS = 2


def fitting(configs, named_args, **kwargs):
    """Tiles no larger than the result; small ones for fp32."""
    widest = 64 if named_args["a_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """Tile row and tile column of a tile."""
    tiles_m = tl.cdiv(M, BLOCK_M)
    in_group = GROUP_M * tl.cdiv(N, BLOCK_N)
    first = tile // in_group * GROUP_M
    height = tl.minimum(tiles_m - first, GROUP_M)
    within = tile % in_group
    return first + within % height, within // height


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def product_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    i, j = place(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = (i * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (j * BLOCK_N + tl.arange(0, BLOCK_N)).to(tl.int64)
    ks = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + rows[:, None] * stride_am + ks[None, :] * stride_ak
    b_ptrs = b_ptr + ks[:, None] * stride_bk + cols[None, :] * stride_bn

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for step in range(0, tl.cdiv(K, BLOCK_K)):
        left = K - step * BLOCK_K
        a = tl.load(a_ptrs, mask=(rows[:, None] < M) & (ks[None, :] < left), other=0.0)
        b = tl.load(b_ptrs, mask=(ks[:, None] < left) & (cols[None, :] < N), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk

    if BIAS == 1:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[None, :], 0.0)
    elif BIAS == 2:
        bias = tl.load(bias_ptr + rows, mask=rows < M, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[:, None], 0.0)

    c_ptrs = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=(rows[:, None] < M) & (cols[None, :] < N))


def _launch(a, b, c, bias, mode):
    """c = a @ b, with the epilogue that mode asks for."""
    (M, K), N = a.shape, b.shape[1]
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    product_kernel[grid](
        a, b, c, bias, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), c.stride(0), c.stride(1),
        BIAS=mode,
    )  # fmt: skip


def _product(a, b, bias, out, bias_relu):
    # (A B)^T = B^T A^T: the columns of a transposed A are rows of memory, and stay the inner side of a tile.
    flipped = a.stride(0) < a.stride(1)
    left, right = (b.T, a.T) if flipped else (a, b)
    if out is None:
        product = left.new_empty((left.shape[0], right.shape[1]))
        out = product.T if flipped else product
    else:
        product = out.T if flipped else out
    mode = NO_BIAS
    if bias_relu:
        mode = BIAS_OF_ROWS if flipped else BIAS_OF_COLUMNS
    _launch(left, right, product, bias, mode)
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, any strides; fp32 sums, rounded once."""
    return _product(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel."""
    return _product(a, b, bias, out, bias_relu=True)
