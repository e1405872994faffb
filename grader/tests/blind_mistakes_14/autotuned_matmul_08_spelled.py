# labs/lab3_autotuned_matmul/autotuned_matmul.py | two mistakes | The store addresses c by `rows_of_c * stride_cm + cols_of_c` without `stride_cn`, so an `out` whose columns are not side by side (transposed, every second column) is written at wrong places; it should be `cols_of_c * stride_cn`. In the epilogue ReLU is applied before the bias, `tl.maximum(sums, 0.0) + bias`; it should be `tl.maximum(sums + bias, 0.0)`.
"""Matrix product tile by tile, autotuned, and the same with bias and ReLU in the epilogue."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps, pre_hook=None):
    """One candidate: tile sizes, powers of two, with the depth of the pipeline and the warps per program."""
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps, pre_hook=pre_hook)


# Shared memory is stages * (BLOCK_M + BLOCK_N) * BLOCK_K * 2 bytes:
CONFIGS = [
    _config(128, 128, 64, 3, 8),  # 96 KB
    _config(128, 128, 32, 3, 8),  # 48 KB
    _config(64, 128, 64, 3, 4),  # 72 KB
    _config(128, 64, 64, 3, 4),  # 72 KB
    _config(64, 64, 64, 3, 4),  # 48 KB
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try for these sizes: tiles no larger than the result, small ones for fp32."""
    # fp32 is computed without tensor cores, where a large tile unrolls into thousands of instructions.
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the tiles of c."""
    number_of_tile_rows = tl.cdiv(M, BLOCK_M)
    number_of_tile_cols = tl.cdiv(N, BLOCK_N)
    tiles_in_a_group = GROUP_M * number_of_tile_cols
    first_tile_row = (tile // tiles_in_a_group) * GROUP_M
    rows_in_this_group = min(number_of_tile_rows - first_tile_row, GROUP_M)
    number_in_group = tile % tiles_in_a_group
    tile_row = first_tile_row + number_in_group % rows_in_this_group
    tile_col = number_in_group // rows_in_this_group
    return tile_row * BLOCK_M, tile_col * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """c = a @ b, or relu(a @ b + bias); program pid owns one BLOCK_M x BLOCK_N tile of c."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)

    # Row and column numbers of the tile of c. int64, because matrices may be very large.
    rows_of_c = (m + tl.arange(0, BLOCK_M)).to(tl.int64)[:, None]
    cols_of_c = (n + tl.arange(0, BLOCK_N)).to(tl.int64)[None, :]
    row_exists = rows_of_c < M
    col_exists = cols_of_c < N

    # The k indices as a row (for a) and as a column (for b).
    cols_of_a = tl.arange(0, BLOCK_K)[None, :]
    rows_of_b = tl.arange(0, BLOCK_K)[:, None]
    a_ptrs = a_ptr + rows_of_c * stride_am + cols_of_a * stride_ak
    b_ptrs = b_ptr + rows_of_b * stride_bk + cols_of_c * stride_bn

    sums = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        # In the last step fewer than BLOCK_K indices are left.
        a = tl.load(a_ptrs, mask=row_exists & (cols_of_a < K - k), other=0.0)
        b = tl.load(b_ptrs, mask=col_exists & (rows_of_b < K - k), other=0.0)
        sums = tl.dot(a, b, sums, input_precision="ieee")
        a_ptrs = a_ptrs + BLOCK_K * stride_ak
        b_ptrs = b_ptrs + BLOCK_K * stride_bk

    if BIAS_RELU:
        # One bias for each column, the same in all rows.
        bias = tl.load(bias_ptr + cols_of_c, mask=col_exists, other=0.0).to(tl.float32)
        sums = tl.maximum(sums, 0.0) + bias

    c_ptrs = c_ptr + rows_of_c * stride_cm + cols_of_c
    tl.store(c_ptrs, sums.to(c_ptr.dtype.element_ty), mask=row_exists & col_exists)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    tiles = lambda meta: triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])  # noqa: E731
    matmul_kernel[lambda meta: (tiles(meta),)](
        a, b, out, bias, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), out.stride(0), out.stride(1), BIAS_RELU=bias_relu,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides; fp32 sums, rounded once.

    The result goes to `out`, (M, N) of that dtype, any strides, where one is given. K may not be 0.
    """
    # Without the epilogue no bias is read; any tensor stands in for its pointer.
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
