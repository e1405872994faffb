# labs/lab3_autotuned_matmul/autotuned_matmul.py | two mistakes | (1) In `mm_kernel`, `tl.load(bias_ptr + lane_n, ...)` should be `bias_ptr + cols`: every tile takes the first BN values of the bias; shows in `matmul_bias_relu` where N exceeds the tile (65 columns or more). (2) `c_ptrs = c_ptr + rows[:, None] * ldc + cols[None, :]` ignores the column stride of out (`cols[None, :] * out.stride(1)`, which `_run` never passes); shows in both functions where out is transposed or every second column of a wider matrix.
"""Matrix product by tiles, with small helpers for the grid, the loads and the epilogue."""

import torch
import triton
import triton.language as tl


def candidates():
    """Every pair of sides of 64, 128 and 256 whose fp32 sums fit the registers of 4 or 8 warps."""
    found = []
    for bm, bn in ((256, 128), (128, 256), (128, 128), (128, 64), (64, 128), (64, 64)):
        warps = 8 if bm * bn >= 128 * 128 else 4
        depth = 32 if bm * bn <= 64 * 64 else 64
        tile = {"BM": bm, "BN": bn, "BK": depth, "GROUP": 8}
        found.append(triton.Config(tile, num_stages=3, num_warps=warps))
    return found


def suitable(configs, named_args, **kwargs):
    """No tile that is larger than the result, and for fp32 none beyond 64 x 64."""
    if named_args["a_ptr"].dtype == torch.float32:
        return configs[-1:]
    m, n = named_args["M"], named_args["N"]
    kept = [c for c in configs if c.kwargs["BM"] <= m and c.kwargs["BN"] <= n]
    return kept or configs[-1:]


@triton.jit
def tile_of(pid, M, N, BM: tl.constexpr, BN: tl.constexpr, GROUP: tl.constexpr):
    """Row and column of a tile, in tiles: groups of GROUP rows, each walked column by column."""
    columns = tl.cdiv(N, BN)
    group = pid // (GROUP * columns)
    height = tl.minimum(GROUP, tl.cdiv(M, BM) - group * GROUP)
    inner = pid % (GROUP * columns)
    return group * GROUP + inner % height, inner // height


@triton.jit
def fetch(ptr, i, j, stride_i, stride_j, size_i, size_j):
    """A block of a matrix with 0 outside of it."""
    return tl.load(
        ptr + i[:, None] * stride_i + j[None, :] * stride_j,
        mask=(i[:, None] < size_i) & (j[None, :] < size_j),
        other=0.0,
    )


@triton.autotune(configs=candidates(), key=["M", "N", "K"], prune_configs_by={"early_config_prune": suitable})
@triton.jit
def mm_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, ldc, EPILOGUE: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """One tile of c = a @ b for each program; EPILOGUE adds the bias and clamps at 0."""
    tile_m, tile_n = tile_of(tl.program_id(0), M, N, BM, BN, GROUP)
    lane_m = tl.arange(0, BM)
    lane_n = tl.arange(0, BN)
    lane_k = tl.arange(0, BK)
    rows = (tile_m * BM + lane_m).to(tl.int64)
    cols = (tile_n * BN + lane_n).to(tl.int64)
    col_in = cols < N

    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        a = fetch(a_ptr + k * stride_ak, rows, lane_k, stride_am, stride_ak, M, K - k)
        b = fetch(b_ptr + k * stride_bk, lane_k, cols, stride_bk, stride_bn, K - k, N)
        acc = tl.dot(a, b, acc, input_precision="ieee")

    if EPILOGUE:
        bias = tl.load(bias_ptr + lane_n, mask=col_in, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[None, :], 0.0)

    c_ptrs = c_ptr + rows[:, None] * ldc + cols[None, :]
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=(rows[:, None] < M) & col_in[None, :])


def _run(a, b, bias, out, epilogue):
    M, K = a.shape
    N = b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)

    def grid(meta):
        return (triton.cdiv(M, meta["BM"]) * triton.cdiv(N, meta["BN"]),)

    mm_kernel[grid](
        a, b, out, bias, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), out.stride(0), EPILOGUE=epilogue,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b, summed in fp32 and rounded once to the dtype of a."""
    return _run(a, b, a, out, False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias), with one value of bias for each column."""
    return _run(a, b, bias, out, True)
