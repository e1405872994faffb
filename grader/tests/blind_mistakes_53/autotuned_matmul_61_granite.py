# labs/lab3_autotuned_matmul/autotuned_matmul.py | wrong everywhere | In `with_bias_and_relu`, `tl.where(acc > 0.0, acc + bias[None, :], 0.0)` decides by the sums without the bias; it should be `tl.where(acc + bias[None, :] > 0.0, acc + bias[None, :], 0.0)`. Wrong in all cases of matmul_bias_relu (a negative sum that the bias lifts above 0 becomes 0, a positive sum that the bias pulls below 0 stays negative); matmul is right.
"""A persistent matrix product: as many programs as the GPU has room for walk over the tiles of the result."""

import torch
import triton
import triton.language as tl


def _tile(block_m, block_n, block_k, stages, warps):
    sizes = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(sizes, num_stages=stages, num_warps=warps)


CONFIGS = [
    _tile(128, 256, 64, 3, 8),
    _tile(256, 128, 64, 3, 8),
    _tile(128, 128, 64, 3, 8),
    _tile(64, 128, 64, 3, 4),
    _tile(64, 64, 32, 3, 4),
]


def fitting(configs, named_args, **kwargs):
    side = min(named_args["M"], named_args["N"])
    if named_args["a_ptr"].dtype == torch.float32:
        side = min(side, 64)
    small = [c for c in configs if c.kwargs["BLOCK_M"] <= side and c.kwargs["BLOCK_N"] <= side]
    return small if small else configs[-1:]


@triton.jit
def corner(tile, tiles_m, tiles_n, GROUP_M: tl.constexpr):
    """Tile row and tile column of a tile, in groups of GROUP_M tile rows."""
    group_size = GROUP_M * tiles_n
    top = (tile // group_size) * GROUP_M
    rows = tl.minimum(tiles_m - top, GROUP_M)
    rest = tile % group_size
    return top + rest % rows, rest // rows


@triton.jit
def sum_of_products(
    a_ptrs, b_ptrs, row_ok, col_ok, K, stride_ak, stride_bk,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """The fp32 sums of one tile; a_ptrs and b_ptrs are its first blocks."""
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    ks = tl.arange(0, BLOCK_K)
    for k in range(0, K, BLOCK_K):
        inside = ks < K - k
        a = tl.load(a_ptrs, mask=row_ok[:, None] & inside[None, :], other=0.0)
        b = tl.load(b_ptrs, mask=inside[:, None] & col_ok[None, :], other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk
    return acc


@triton.jit
def with_bias_and_relu(acc, bias_ptr, cols, col_ok):
    """One value of the bias for each column, then the negative ones become 0; all in fp32."""
    bias = tl.load(bias_ptr + cols, mask=col_ok, other=0.0).to(tl.float32)
    return tl.where(acc > 0.0, acc + bias[None, :], 0.0)


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def persistent_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    tl.assume(K > 0)
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    ks = tl.arange(0, BLOCK_K)
    for tile in range(tl.program_id(0), tiles_m * tiles_n, tl.num_programs(0)):
        tile_m, tile_n = corner(tile, tiles_m, tiles_n, GROUP_M)
        rows = tile_m * BLOCK_M + tl.arange(0, BLOCK_M).to(tl.int64)
        cols = tile_n * BLOCK_N + tl.arange(0, BLOCK_N).to(tl.int64)
        row_ok = rows < M
        col_ok = cols < N
        a_ptrs = a_ptr + rows[:, None] * stride_am + ks[None, :] * stride_ak
        b_ptrs = b_ptr + ks[:, None] * stride_bk + cols[None, :] * stride_bn
        acc = sum_of_products(
            a_ptrs, b_ptrs, row_ok, col_ok, K, stride_ak, stride_bk, BLOCK_M, BLOCK_N, BLOCK_K
        )
        if BIAS_RELU:
            acc = with_bias_and_relu(acc, bias_ptr, cols, col_ok)
        c_ptrs = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
        tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=row_ok[:, None] & col_ok[None, :])


def _processors():
    if not torch.cuda.is_available():
        return 132
    return torch.cuda.get_device_properties(torch.cuda.current_device()).multi_processor_count


def _run(a, b, bias, out, bias_relu):
    (M, K), (_, N) = a.shape, b.shape
    if out is None:
        out = a.new_empty((M, N))
    processors = _processors()

    def grid(meta):
        tiles = triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])
        # Two of the smaller tiles have room on one processor.
        resident = 1 if meta["BLOCK_M"] * meta["BLOCK_N"] > 128 * 128 else 2
        return (min(tiles, resident * processors),)

    persistent_kernel[grid](
        a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), BIAS_RELU=bias_relu
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b, any strides, one dtype; sums in fp32."""
    return _run(a, b, a, out, False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in the same kernel; bias has one value for each column."""
    return _run(a, b, bias, out, True)
